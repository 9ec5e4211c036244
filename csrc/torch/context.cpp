#include "torch/context.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/ops.h>

#include "torch/framework.h"
#if FASTGEMM_HAS_CUDA
#include "torch/cuda_context.h"
#endif

namespace fastgemm::torch_ops {
namespace {

const Backend& cpu_backend() {
  static const Backend backend{.device_type = aoti_torch_device_type_cpu(),
                               .mm = aoti_torch_cpu_mm_out,
                               .bmm = aoti_torch_cpu_bmm_out,
                               .int_mm = aoti_torch_cpu__int_mm_out,
                               .addmm = aoti_torch_cpu_addmm_out,
                               .baddbmm = aoti_torch_cpu_baddbmm_out};
  return backend;
}

}  // namespace

CpuContext::CpuContext() : threads_(int(torch::stable::get_num_threads())) {}

void CpuContext::parallel(int64_t tasks, Task task) {
  if (tasks <= 1 || threads_ <= 1) return Context::parallel(tasks, task);
  torch::stable::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end && !stopped(); ++i) task(i);
  });
  check();  // here, because torch does not pass on exceptions of a task unchanged
}

void CpuContext::callers_gemm(const GemmProblem& p) { framework_gemm(cpu_backend(), operands(), p); }
void CpuContext::callers_transpose(const TransposeProblem& p) { framework_transpose(cpu_backend(), 0, p); }

bool built_with_cuda() { return FASTGEMM_HAS_CUDA; }

void with_gpu_context([[maybe_unused]] int device_index,
                      [[maybe_unused]] const std::function<void(OpContext&, Device, int)>& body) {
#if FASTGEMM_HAS_CUDA
  CudaContext context(device_index);
  body(context, Device::cuda, 0);
#else
  throw std::logic_error("fastgemm: a build without CUDA has no ops for GPUs");
#endif
}

}  // namespace fastgemm::torch_ops
