// Level 5: registers and all cores.
//
// Level 4 still loads and stores C for every k: two memory operations a multiply-add. Here a C tile of
// 14 x 32 floats (AVX-512) lives in registers over a whole k-block, so that 28 multiply-adds need 16
// loads, and the multiply units are busy over 90 % of the time. And all cores take part.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Packing, int MR, class Multiply>
struct Microkernel : RegisterTraits<Microkernel<Packing, MR, Multiply>, Packing, MR, 2, Multiply> {
  static FASTGEMM_INLINE void prefetch_start(const MicroTile<Microkernel>&) {}
};

}  // namespace

void gemm_microkernel(const GemmProblem& p, Context& ctx) {
  with_element(p.type, [&]<class Element>() {
    // Integer products need a register for the product before it is added.
    constexpr bool integer = std::is_integral_v<Element>;
    constexpr int rows = kRegisters == 32 ? (integer ? 12 : 14) : 6;
    if constexpr (std::is_same_v<Element, int8_t>) {
      run_engine<Microkernel<Int16Pairs, rows, PairMultiplyAdd>>(p, ctx);
    } else {
      run_engine<Microkernel<Widened<Element>, rows, MultiplyAdd>>(p, ctx);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
