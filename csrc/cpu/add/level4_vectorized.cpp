// Level 4: SIMD registers of 16 to 64 bytes, for operands with stride 1 or 0 (broadcast), for transposed ones
// in tiles (tiles.h), and for short rows and results with strides in blocks (blocks.h). Operands with other
// strides are added element by element. fp16 and bf16 are widened to fp32 in registers and rounded once.
#include "cpu/add/blocks.h"
#include "cpu/add/levels.h"
#include "cpu/add/tiles.h"

namespace fastgemm::FASTGEMM_ISA {

void add_vectorized(const AddProblem& p) {
  with_number(p.type, [&]<class T, class Part>() {
    const auto alpha = scalar_of<Accumulator<Part>>(p.alpha);
    const auto add = [&](const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t n) {
      add_row(a, a_stride, b, b_stride, out, n, alpha);
    };
    if (add_tiles<T>(p, add) || add_blocks<T>(p, add, alpha)) return;
    for (int64_t i = 0; i < p.rows; ++i)
      add(static_cast<const T*>(p.a.data) + i * p.a.row_stride, p.a.col_stride,
          static_cast<const T*>(p.b.data) + i * p.b.row_stride, p.b.col_stride,
          static_cast<T*>(p.out.data) + i * p.out.row_stride, p.cols);
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
