// Level 5: all cores, and non-temporal stores for results too large to stay cached. An ordinary store first
// reads its cache line from memory, so four streams cross the memory bus; a non-temporal store saves one.
// Sums are formed in a 512-byte buffer in L1 and written in whole cache lines. Every element size and
// alignment can therefore use the same code. Small or in-place sums use level 4's stores (table.cpp).
#include "cpu/add/levels.h"
#include "cpu/add/tiles.h"
#include "cpu/transpose/stream_row.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

// Short, so that the stores of one buffer overlap with the loads of the next: 4096 bytes lose 40 % in fp32.
constexpr int64_t kPieceBytes = 512;

template <class T, class Scale>
FASTGEMM_INLINE void stream_sum(const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t n,
                                Scale alpha) {
  constexpr int64_t kSize = sizeof(T), kPiece = kPieceBytes / kSize;
  alignas(kLine) T piece[kPiece];
  // The first part ends at the end of a cache line of out, so all other parts do too.
  int64_t count = kPiece - static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) & (kLine - 1)) / kSize;
  for (int64_t j = 0; j < n; j += count, count = kPiece) {
    count = min(count, n - j);
    add_row(a + j * a_stride, a_stride, b + j * b_stride, b_stride, piece, count, alpha);
    stream_row(reinterpret_cast<char*>(out + j), reinterpret_cast<const char*>(piece), 0, count * kSize);
  }
}

}  // namespace

void add_streaming(const AddProblem& p) {
  with_number(p.type, [&]<class T, class Part>() {
    const auto alpha = scalar_of<Accumulator<Part>>(p.alpha);
    const auto add = [&](const T* a, int64_t a_stride, const T* b, int64_t b_stride, T* out, int64_t n) {
      stream_sum(a, a_stride, b, b_stride, out, n, alpha);
    };
    if (add_tiles<T>(p, add)) return;
    for (int64_t i = 0; i < p.rows; ++i) {
      add(static_cast<const T*>(p.a.data) + i * p.a.row_stride, p.a.col_stride,
          static_cast<const T*>(p.b.data) + i * p.b.row_stride, p.b.col_stride,
          static_cast<T*>(p.out.data) + i * p.out.row_stride, p.cols);
    }
  });
  stream_fence();
}

}  // namespace fastgemm::FASTGEMM_ISA
