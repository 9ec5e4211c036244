// Writes the right operand of a complex product as rows of the right operand of a real product, in one pass:
// each element is read once and written twice. A column-major src goes through shared memory, so that reads
// and writes are coalesced.
#include "core/doubled_rows.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 32, kThreads = 256, kEach = kTile * kTile / kThreads;  // elements that a thread moves

// Memory that torch did not allocate may begin at any multiple of a real or imaginary part.
template <class Part, bool aligned>
struct alignas(aligned ? 2 * sizeof(Part) : sizeof(Part)) Complex {
  Part re, im;
};

template <class Part>
__device__ __forceinline__ Complex<Part, true> read(const Complex<Part, true>& x) {
  return x;
}
template <class Part>
__device__ __forceinline__ Complex<Part, true> read(const Complex<Part, false>& x) {
  return {x.re, x.im};
}
template <class Part>
__device__ __forceinline__ void write(Complex<Part, true>& to, Part re, Part im) {
  to = {re, im};
}
template <class Part>
__device__ __forceinline__ void write(Complex<Part, false>& to, Part re, Part im) {
  to.re = re;
  to.im = im;
}

template <class Part, bool aligned>
struct Doubling {
  using Element = Complex<Part, aligned>;
  const Element* src;
  Element* dst;
  int64_t rows, cols, row_stride, col_stride, batch_stride, dst_batch_stride;
  uint32_t down, across;      // tiles per matrix
  Part even, odd_re, odd_im;  // sign bits to flip: of b's imaginary part, and of both parts of +-i b
};

template <class Part, bool aligned>
__global__ void __launch_bounds__(kThreads) doubled_rows_kernel(const Doubling<Part, aligned> d) {
  using Element = Complex<Part, aligned>;
  FASTGEMM_SHARED Complex<Part, true> staged[kTile][kTile + 1];
  const uint32_t matrix = blockIdx.x / (d.down * d.across), tile = blockIdx.x % (d.down * d.across);
  const int64_t row = int64_t(tile / d.across) * kTile, col = int64_t(tile % d.across) * kTile;
  const Element* const src = d.src + matrix * d.batch_stride;
  Element* const dst = d.dst + matrix * d.dst_batch_stride;
  const int x = int(threadIdx.x) % kTile, y = int(threadIdx.x) / kTile;
  constexpr int kStep = kThreads / kTile;

  Complex<Part, true> value[kEach];
  if (d.row_stride == 1 && d.col_stride != 1) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int64_t j = col + y + i * kStep;
      if (row + x < d.rows && j < d.cols) staged[x][y + i * kStep] = read(src[row + x + j * d.col_stride]);
    }
    __syncthreads();
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i)
      if (row + y + i * kStep < d.rows && col + x < d.cols) value[i] = staged[y + i * kStep][x];
  } else {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = row + y + i * kStep;
      if (r < d.rows && col + x < d.cols) value[i] = read(src[r * d.row_stride + (col + x) * d.col_stride]);
    }
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = row + y + i * kStep;
    if (r >= d.rows || col + x >= d.cols) continue;
    Element* const b = dst + 2 * r * d.cols + col + x;
    write<Part>(b[0], value[i].re, Part(value[i].im ^ d.even));
    write<Part>(b[d.cols], Part(value[i].im ^ d.odd_re), Part(value[i].re ^ d.odd_im));
  }
}

template <class Part, bool aligned>
void double_parts(const DoubledRows& all, Context& context) {
  constexpr Part kSign = Part(Part(1) << (8 * sizeof(Part) - 1));
  using Element = Complex<Part, aligned>;
  Doubling<Part, aligned> d{static_cast<const Element*>(all.src.data),
                            static_cast<Element*>(all.dst.data),
                            all.rows,
                            all.cols,
                            all.src.row_stride,
                            all.src.col_stride,
                            all.src.batch_stride,
                            all.dst.batch_stride,
                            uint32_t(ceil_div(all.rows, kTile)),
                            uint32_t(ceil_div(all.cols, kTile)),
                            all.conjugates ? kSign : Part(0)};
  d.odd_im = all.turns_back ? kSign : Part(0);
  d.odd_re = all.turns_back ? d.even : Part(d.even ^ kSign);
  const int64_t tiles = all.batch * d.down * d.across;  // fewer than the 2^31 blocks of a grid
  launch<doubled_rows_kernel<Part, aligned>>("doubled_rows", {dim3(unsigned(tiles)), dim3(kThreads)},
                                             context)(d);
}

template <class Part>
void double_aligned(const DoubledRows& d, Context& context) {
  is_aligned(static_cast<const char*>(d.src.data), 2 * sizeof(Part)) ? double_parts<Part, true>(d, context)
                                                                     : double_parts<Part, false>(d, context);
}

}  // namespace

void double_rows(const DoubledRows& d, Context& context) {
  if (d.batch * d.rows * d.cols == 0) return;
  if (d.part_bytes == 2) return double_aligned<uint16_t>(d, context);
  if (d.part_bytes == 4) return double_aligned<uint32_t>(d, context);
  double_aligned<uint64_t>(d, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
