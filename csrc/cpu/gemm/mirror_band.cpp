// Copies columns below the diagonal to rows above it, transposed in registers (cpu/transpose/simd.h). Tiles
// that are conjugated, and those on the diagonal, go through a buffer in L1. A product with few terms takes
// about as long as this pass, which is limited by memory from some hundred rows on. Conjugated elements took
// twice as long one by one.
#include "cpu/gemm/mirror_band.h"

#include "cpu/gemm/simd.h"
#include "cpu/transpose/simd.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

// Rows and columns of a tile; a row has at most 256 bytes (kStripBytes).
template <int Size>
inline constexpr int64_t kTile = min<int64_t>(kMirrorBand, kStripBytes / Size);

// Copies a row of elements, and conjugates them. A complex number ends with the sign of its imaginary part.
template <int Size, bool Conjugated>
FASTGEMM_INLINE void copy_row(const char* from, char* to, int64_t count) {
  using V = Vector<uint64_t>;
  constexpr uint64_t kSign = uint64_t{1} << 63;
  V signs{};
  if constexpr (Conjugated)
    for (int l = 0; l < kLanes<uint64_t>; ++l)
      signs[l] = Size == 4 ? kSign | kSign >> 32 : Size == 8 || l % 2 ? kSign : 0;
  const int64_t bytes = count * Size;
  int64_t b = 0;
  for (; b + kVectorBytes <= bytes; b += kVectorBytes) store(to + b, load<V>(from + b) ^ signs);
  for (; b < bytes; b += Size) {
    keep_scalar();
    std::memcpy(to + b, from + b, Size);
    if constexpr (Conjugated) to[b + Size - 1] = static_cast<char>(to[b + Size - 1] ^ 0x80);
  }
}

template <int Size, bool Conjugated>
struct Band {
  char* x;         // the matrix
  int64_t stride;  // bytes
  int64_t n;
  alignas(kLine) char buffer[kTile<Size> * kTile<Size> * Size];

  Band(const Mirror& m, int64_t matrix)
      : x(static_cast<char*>(m.out.data) + matrix * m.out.batch_stride * Size),
        stride(m.out.row_stride * Size),
        n(m.n) {}

  char* at(int64_t i, int64_t j) const { return x + i * stride + j * Size; }

  // Fills a tile above the diagonal, or on it: there each row begins behind the diagonal.
  void fill_by_buffer(int64_t i, int64_t j) {
    constexpr int64_t kRow = kTile<Size> * Size;
    const int64_t rows = min(kTile<Size>, n - i), cols = min(kTile<Size>, n - j);
    transpose_tile<Size>(at(j, i), stride, buffer, kRow, cols, rows);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t first = i == j ? r + 1 : 0;
      if (first < cols)
        copy_row<Size, Conjugated>(buffer + r * kRow + first * Size, at(i + r, j + first), cols - first);
    }
  }
  void make_diagonal_real(int64_t i) { std::memset(at(i, i) + Size / 2, 0, Size / 2); }
  void fill(int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += kTile<Size>) {
      fill_by_buffer(i, i);
      const int64_t next = i + kTile<Size>;
      if constexpr (Conjugated) {
        for (int64_t r = i; r < min(next, n); ++r) make_diagonal_real(r);
        for (int64_t j = next; j < n; j += kTile<Size>) fill_by_buffer(i, j);
      } else if (next < n) {
        transpose_tile<Size>(at(next, i), stride, at(i, next), stride, n - next, kTile<Size>);
      }
    }
  }
};

template <int Size, bool Conjugated>
void fill_band(const Mirror& m, int64_t matrix, int64_t row) {
  Band<Size, Conjugated> band(m, matrix);
  band.fill(row, min(row + kMirrorBand, m.n));
}

}  // namespace

void mirror_band(const Mirror& m, int64_t matrix, int64_t row) {
  if (m.conjugated) {
    if (m.bytes == 4) return fill_band<4, true>(m, matrix, row);
    return m.bytes == 8 ? fill_band<8, true>(m, matrix, row) : fill_band<16, true>(m, matrix, row);
  }
  switch (m.bytes) {
    case 1:
      return fill_band<1, false>(m, matrix, row);
    case 2:
      return fill_band<2, false>(m, matrix, row);
    case 4:
      return fill_band<4, false>(m, matrix, row);
    case 8:
      return fill_band<8, false>(m, matrix, row);
    default:
      return fill_band<16, false>(m, matrix, row);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
