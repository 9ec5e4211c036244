#include "torch/epilogue_pass.h"

#include "core/simulator.h"

namespace fastgemm::torch_ops {
namespace {

bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

void run_on(Device device, const EpiloguePass& f, Context& context) {
#if FASTGEMM_HAS_CUDA
  if (device == Device::cuda) return cuda::run_epilogue_pass(f, context);
#endif
  if (device == Device::simt) return simulated_epilogue_pass(f, context);
  cpu::run_epilogue_pass(f, context);
}

}  // namespace

GemmProblem chosen_for(const GemmProblem& p) {
  if (!p.epilogue.asked()) return p;
  GemmProblem q = sums_of(p);
  q.epilogue = p.epilogue;
  return q;
}

void multiply_then_pass(const Kernel& kernel, const GemmProblem& p, Device device, Context& context) {
  GemmProblem sums = sums_of(p);
  if (is_half(p.out_type)) {
    GemmProblem wide = sums;
    wide.out_type = DType::f32;
    const int64_t pitch = (p.n + 3) / 4 * 4;  // each row starts at a multiple of 16 bytes
    wide.out = {nullptr, pitch, 1, p.m * pitch};
    if (!kernel.rejects || !kernel.rejects(wide)) {
      wide.out.data = context.allocate(size_t(p.batch * p.m * pitch) * sizeof(float));
      sums = wide;
    }
  }
  kernel.gemm(sums, context);
  run_on(device, pass_after(p, sums), context);
}

}  // namespace fastgemm::torch_ops
