// Level 2: staging. Blocks of both operands are copied to buffers in L1, added there, and copied out. This
// pays in GEMM, where a staged element is used many times. Here each element is used once, so staging gains
// nothing: the same bytes cross the memory bus, and three more copies of each element are made on the way.
// The lesson of this rung: fast memory helps only where data is reused.
#include "cpu/add/levels.h"
#include "cpu/gemm/element.h"

namespace fastgemm {

using namespace scalar;

namespace {

constexpr int64_t kStage = 1024;  // elements; three buffers of at most 8 KiB each

template <class To, class From>
void copy(To* to, int64_t to_stride, const From* from, int64_t from_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i * to_stride] = from[i * from_stride];
}

template <class T>
void add_row(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t out_stride,
             int64_t n, Accumulator<T> alpha) {
  T a_stage[kStage], b_stage[kStage], sum[kStage];
  for (int64_t j = 0; j < n; j += kStage) {
    const int64_t count = min(kStage, n - j);
    copy(a_stage, 1, a + j * a_stride, a_stride, count);
    copy(b_stage, 1, b + j * b_stride, b_stride, count);
    for (int64_t k = 0; k < count; ++k) sum[k] = round_to<T>(widen(a_stage[k]) + alpha * widen(b_stage[k]));
    copy(out + j * out_stride, out_stride, sum, 1, count);
  }
}

}  // namespace

void add_staged(const AddProblem& p) {
  with_element(p.type, [&]<class T>() {
    for (int64_t i = 0; i < p.rows; ++i) {
      add_row(static_cast<const T*>(p.a.data) + i * p.a.row_stride, p.a.col_stride,
              static_cast<const T*>(p.b.data) + i * p.b.row_stride, p.b.col_stride,
              static_cast<T*>(p.out.data) + i * p.out.row_stride, p.out.col_stride, p.cols,
              scalar_of<Accumulator<T>>(p.alpha));
    }
  });
}

}  // namespace fastgemm
