// The transpose of a column-major src is a copy of its columns to the rows of dst. Every level uses this
// copy. Each aligned window of 16 bytes in a row of dst is made from the one or two aligned units of src that
// hold its bytes, by a shift. So rows are copied 16 bytes at a time, wherever they begin. The incomplete
// windows at the ends of a row are copied element by element.
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Copies rows of `bytes` bytes at constant distances, as cudaMemcpy3D does.
struct PitchedCopy {
  const char* src;
  char* dst;
  int64_t matrices, rows, bytes;  // bytes of a row
  int64_t src_stride, dst_stride, src_batch_stride, dst_batch_stride;

  // The most windows that a row of dst touches.
  __host__ __device__ __forceinline__ int64_t windows() const { return (bytes + 30) / 16; }
};

constexpr int kCopyThreads = 256, kCopyUnroll = 4;

// Division of 32-bit indices is five times as fast as that of 64-bit indices.
template <int Size, class Index>
__global__ void __launch_bounds__(kCopyThreads) transpose_copy_kernel(PitchedCopy c) {
  const Index windows = Index(c.windows()), count = Index(c.matrices * c.rows * c.windows());
  Unit low[kCopyUnroll], high[kCopyUnroll];
  int shift[kCopyUnroll];
  char* target[kCopyUnroll];
  FASTGEMM_UNROLL
  for (int u = 0; u < kCopyUnroll; ++u) {
    const Index index = Index(blockIdx.x) * (kCopyThreads * kCopyUnroll) + u * kCopyThreads + threadIdx.x;
    target[u] = nullptr;
    if (index >= count) continue;
    const Index row = c.rows * c.matrices == 1 ? 0 : index / windows, window = index - row * windows;
    const Index matrix = c.matrices == 1 ? 0 : row / Index(c.rows);
    const int64_t row_in_matrix = row - matrix * Index(c.rows);
    char* const to = c.dst + int64_t(matrix) * c.dst_batch_stride + row_in_matrix * c.dst_stride;
    const char* const from = c.src + int64_t(matrix) * c.src_batch_stride + row_in_matrix * c.src_stride;
    const int64_t begin = int64_t(window) * 16 - int64_t(reinterpret_cast<uintptr_t>(to) % 16);
    shift[u] = int((reinterpret_cast<uintptr_t>(from) + begin) % 16);
    const int64_t unit = begin - shift[u];  // where the first aligned unit begins in the row of src
    if (begin >= 0 && unit >= 0 && unit + (shift[u] ? 32 : 16) <= c.bytes) {
      low[u] = *reinterpret_cast<const Unit*>(from + unit);
      if (shift[u]) high[u] = *reinterpret_cast<const Unit*>(from + unit + 16);
      target[u] = to + begin;
    } else {
      using T = Element<Size>;
      const int64_t end = min(begin + 16, c.bytes);
      FASTGEMM_NO_UNROLL
      for (int64_t at = max(begin, int64_t(0)); at < end; at += Size)
        *reinterpret_cast<T*>(to + at) = *reinterpret_cast<const T*>(from + at);
    }
  }
  FASTGEMM_UNROLL
  for (int u = 0; u < kCopyUnroll; ++u)
    if (target[u])
      *reinterpret_cast<Unit*>(target[u]) = shift[u] ? bytes_at<Size>(low[u], high[u], shift[u]) : low[u];
}

bool is_row_copy(const TransposeProblem& p) { return p.src.row_stride == 1 || p.rows <= 1; }

void copy_rows(const TransposeProblem& p, Context& context) {
  const int64_t size = element_size(p.type);
  PitchedCopy c{static_cast<const char*>(p.src.data),
                static_cast<char*>(p.dst.data),
                p.batch,
                p.cols,
                p.rows * size,
                p.src.col_stride * size,
                p.dst.row_stride * size,
                p.src.batch_stride * size,
                p.dst.batch_stride * size};
  // Rows without gaps in both src and dst are treated as one long row; matrices without gaps then as one
  // matrix.
  if (c.rows == 1 || (c.src_stride == c.bytes && c.dst_stride == c.bytes)) {
    c.bytes *= c.rows, c.rows = 1;
    if (c.matrices == 1 || (c.src_batch_stride == c.bytes && c.dst_batch_stride == c.bytes))
      c.bytes *= c.matrices, c.matrices = 1;
  }
  if (c.bytes < 64 || !starts_at_elements(p)) return transpose_flat(p, context);
  const int64_t windows = c.matrices * c.rows * c.windows();
  const LaunchShape shape{dim3(unsigned(ceil_div(windows, kCopyThreads * kCopyUnroll))), dim3(kCopyThreads)};
  with_size(p.type, [&]<int Size>() {
    if (windows < INT32_MAX)
      launch<transpose_copy_kernel<Size, uint32_t>>("transpose_copy", shape, context)(c);
    else
      launch<transpose_copy_kernel<Size, int64_t>>("transpose_copy", shape, context)(c);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
