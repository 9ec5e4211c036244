// Level 4: SIMD inner loop.
//
// Level 3 multiplies one number at a time. In the packed panel of B, neighbouring columns already lie side by
// side. So a vector register holds a row of the panel, and one instruction does 16 multiply-adds (fp32,
// AVX-512). But each multiply-add waits about 4 cycles for the sum before it, so the unit is idle three
// quarters of the time.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Packing, class Multiply>
struct Simd : PanelTraits<Packing, 4, kLanes<Accumulator<typename Packing::Element>>> {
  using Base = PanelTraits<Packing, 4, kLanes<Accumulator<typename Packing::Element>>>;
  using Base::kGroup, Base::kMR, Base::kNR;

  // One row of A times one vector of columns of B, one k at a time.
  static void micro_kernel(const MicroTile<Simd>& t) {
    using V = Vector<typename Base::Acc>;
    for (int i = 0; i < t.rows; ++i) {
      V sum = {};
      for (int64_t g = 0; g < ceil_div(t.k, kGroup); ++g)
        sum = Multiply::apply(sum, broadcast<V>(t.a[g * kMR + i]), load<V>(t.b + g * kNR));
      typename Base::Acc* c = t.c + i * t.ldc;
      store(c, t.accumulate ? load<V>(c) + sum : sum);
    }
  }
};

}  // namespace

void gemm_simd(const GemmProblem& p, Context& ctx) {
  with_element(p.type, [&]<class T>() {
    if constexpr (kIsNarrowInteger<T>) {
      run_five_loops<Simd<Int16Pairs<T>, PairMultiplyAdd>>(p, ctx, 1);
    } else {
      run_five_loops<Simd<Widened<T>, MultiplyAdd>>(p, ctx, 1);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
