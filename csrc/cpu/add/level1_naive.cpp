// Level 1: two loops, any strides. Each element costs one addition and three memory accesses. If the operands
// are larger than the cache, memory bandwidth is the limit; the rungs above can only use more of it.
#include "cpu/add/levels.h"
#include "cpu/gemm/element.h"

namespace fastgemm {

using namespace scalar;

void add_naive(const AddProblem& p) {
  with_element(p.type, [&]<class T>() {
    const auto alpha = scalar_of<Accumulator<T>>(p.alpha);
    for (int64_t i = 0; i < p.rows; ++i) {
      const T* a = static_cast<const T*>(p.a.data) + i * p.a.row_stride;
      const T* b = static_cast<const T*>(p.b.data) + i * p.b.row_stride;
      T* out = static_cast<T*>(p.out.data) + i * p.out.row_stride;
      for (int64_t j = 0; j < p.cols; ++j) {
        out[j * p.out.col_stride] =
            round_to<T>(widen(a[j * p.a.col_stride]) + alpha * widen(b[j * p.b.col_stride]));
      }
    }
  });
}

}  // namespace fastgemm
