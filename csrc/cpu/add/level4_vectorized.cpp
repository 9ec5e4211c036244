// Level 4: SIMD registers of 16 to 64 bytes, for operands with stride 1 or 0 (broadcast), and for transposed
// ones in tiles (tiles.h). Other strides are added element by element. fp16 and bf16 are widened to fp32 in
// registers and rounded once.
#include "cpu/add/levels.h"
#include "cpu/add/tiles.h"

namespace fastgemm::FASTGEMM_ISA {

void add_vectorized(const AddProblem& p) {
  with_number(p.type, [&]<class T, class Part>() {
    const auto alpha = scalar_of<Accumulator<Part>>(p.alpha);
    const auto add = [&](const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t n) {
      add_row(a, a_stride, b, b_stride, out, n, alpha);
    };
    if (add_tiles<T>(p, add)) return;
    for (int64_t i = 0; i < p.rows; ++i) {
      const T* a = static_cast<const T*>(p.a.data) + i * p.a.row_stride;
      const T* b = static_cast<const T*>(p.b.data) + i * p.b.row_stride;
      T* out = static_cast<T*>(p.out.data) + i * p.out.row_stride;
      if (p.out.col_stride == 1) {
        add(a, p.a.col_stride, b, p.b.col_stride, out, p.cols);
      } else {
        add_strided(a, p.a.col_stride, b, p.b.col_stride, out, p.out.col_stride, p.cols, alpha);
      }
    }
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
