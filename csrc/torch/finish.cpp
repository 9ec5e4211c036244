#include "torch/finish.h"

#include "core/simulator.h"

namespace fastgemm::torch_ops {
namespace {

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

void finish_on(Device device, const Finish& f, Context& context) {
#if FASTGEMM_HAS_CUDA
  if (device == Device::cuda) return cuda::finish(f, context);
#endif
  if (device == Device::simt) return simulated_finish(f, context);
  cpu::finish(f, context);
}

}  // namespace

GemmProblem chosen_for(const GemmProblem& p) {
  if (!p.epilogue.asked()) return p;
  GemmProblem q = sums_of(p);
  q.epilogue = p.epilogue;
  return q;
}

void multiply_and_finish(const Kernel& kernel, const GemmProblem& p, Device device, Context& context) {
  GemmProblem sums = sums_of(p);
  if (is_half(p.out_type)) {
    GemmProblem wide = sums;
    wide.out_type = DType::f32;
    const int64_t pitch = (p.n + 3) / 4 * 4;  // rows of whole 16 bytes
    wide.out = {nullptr, pitch, 1, p.m * pitch};
    if (!kernel.rejects || !kernel.rejects(wide)) {
      wide.out.data = context.allocate(size_t(p.batch * p.m * pitch) * sizeof(float));
      sums = wide;
    }
  }
  kernel.gemm(sums, context);
  finish_on(device, finish_of(p, sums), context);
}

}  // namespace fastgemm::torch_ops
