// Level 3: packed panels.
//
// Level 2's blocks fit in the cache, but not in the order in which they lie in memory: each element of a
// column of B is in another cache line, in another page and, at power-of-two strides, in the same cache set.
// So here every block is first copied to micro-panels (pack.h), which the inner loop reads from front to
// back. The copy takes O(N^2) accesses and saves O(N^3) slow ones. It also keeps transposition, strides and
// type conversion out of the inner loop.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::scalar {
namespace {

template <class T>
struct PackedPanels : PanelTraits<Widened<T>, 4, 4> {
  using Base = PanelTraits<Widened<T>, 4, 4>;
  using Base::kMR, Base::kNR;

  // One row of A times the four columns of a B panel, one k at a time.
  static void micro_kernel(const MicroTile<PackedPanels>& t) {
    for (int i = 0; i < t.rows; ++i) {
      typename Base::Acc sum[kNR] = {};
      for (int64_t kk = 0; kk < t.k; ++kk)
        for (int j = 0; j < kNR; ++j) sum[j] += t.a[kk * kMR + i] * t.b[kk * kNR + j];
      for (int j = 0; j < kNR; ++j) t.c[i * t.ldc + j] = t.accumulate ? t.c[i * t.ldc + j] + sum[j] : sum[j];
    }
  }
};

}  // namespace
}  // namespace fastgemm::scalar

namespace fastgemm {

void gemm_packed(const GemmProblem& p, Context& ctx) {
  scalar::with_element(p.type,
                       [&]<class T>() { scalar::run_five_loops<scalar::PackedPanels<T>>(p, ctx, 1); });
}

}  // namespace fastgemm
