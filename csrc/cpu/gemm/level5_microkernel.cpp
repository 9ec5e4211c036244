// Level 5: registers and all cores.
//
// Level 4 computes one sum at a time, and needs two loads for each multiply-add. Here a C tile of 14 x 32
// floats (AVX-512) stays in registers over a whole k-block. Its 28 independent sums hide the latency, and 28
// multiply-adds need only 16 loads, so the multiply units are busy over 90 % of the time. This level also
// uses all cores.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"
#include "cpu/gemm/small_routes.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Packing, int MR, class Multiply>
struct Microkernel : RegisterTraits<Microkernel<Packing, MR, Multiply>, Packing, MR, 2, Multiply> {};

}  // namespace

void gemm_microkernel(const GemmProblem& p, Context& ctx) {
  with_register_packing(p.type, [&]<class Packing, int MR, class Multiply>() {
    run_engine<Microkernel<Packing, MR, Multiply>>(p, ctx);
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
