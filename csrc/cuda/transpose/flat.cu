// Narrow matrices, such as 3 x 10^7 or a batch of 4 x 4, are moved one element at a time. The order is that
// of src or of dst, whichever has the shorter rows. That matrix is then accessed contiguously. The other
// matrix has so few rows that L1 and L2 keep their lines until all their elements are used. Levels from 4 on
// use this.
#include "cuda/transpose/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The strides of src or of dst in bytes, by the indices (matrix, slow, fast) of an element.
struct FlatSide {
  int64_t matrix, slow, fast;
  __device__ __forceinline__ int64_t offset(int64_t m, int64_t s, int64_t f) const {
    return m * matrix + s * slow + f * fast;
  }
};
struct Flat {
  const char* src;
  char* dst;
  int64_t matrices, slow, fast;
  FlatSide from, to;
};

constexpr int kFlatThreads = 256, kFlatUnroll = 4;

// Division of 32-bit indices is five times as fast as that of 64-bit indices.
template <class T, class Index>
__global__ void __launch_bounds__(kFlatThreads) transpose_flat_kernel(Flat f) {
  const Index first = Index(blockIdx.x) * (kFlatThreads * kFlatUnroll) + threadIdx.x;
  const Index count = Index(f.matrices * f.slow * f.fast);
  T value[kFlatUnroll];
  int64_t target[kFlatUnroll];
  FASTGEMM_UNROLL
  for (int u = 0; u < kFlatUnroll; ++u) {
    const Index index = first + u * kFlatThreads;
    if (index >= count) continue;
    const Index row = index / Index(f.fast), fast = index % Index(f.fast);
    const Index matrix = row / Index(f.slow), slow = row % Index(f.slow);
    value[u] = *reinterpret_cast<const T*>(f.src + f.from.offset(matrix, slow, fast));
    target[u] = f.to.offset(matrix, slow, fast);
  }
  FASTGEMM_UNROLL
  for (int u = 0; u < kFlatUnroll; ++u)
    if (first + u * kFlatThreads < count) *reinterpret_cast<T*>(f.dst + target[u]) = value[u];
}

// A 16-byte element that is only aligned to 8 bytes.
struct Halves {
  uint64_t half[2];
};

template <class T>
void launch_flat(const Flat& f, Context& context) {
  const int64_t count = f.matrices * f.slow * f.fast;
  const LaunchShape shape{dim3(unsigned(ceil_div(count, kFlatThreads * kFlatUnroll))), dim3(kFlatThreads)};
  if (count < INT32_MAX)
    launch<transpose_flat_kernel<T, uint32_t>>("transpose_flat", shape, context)(f);
  else
    launch<transpose_flat_kernel<T, int64_t>>("transpose_flat", shape, context)(f);
}

// Whether rows of src or of dst are shorter than two sectors.
bool is_narrow(const TransposeProblem& p) { return std::min(p.rows, p.cols) * element_size(p.type) < 64; }

void transpose_flat(const TransposeProblem& p, Context& context) {
  const int64_t size = element_size(p.type);
  Flat f{.src = static_cast<const char*>(p.src.data),
         .dst = static_cast<char*>(p.dst.data),
         .matrices = p.batch,
         .slow = p.cols,
         .fast = p.rows,
         .from = {p.src.batch_stride * size, p.src.col_stride * size, p.src.row_stride * size},
         .to = {p.dst.batch_stride * size, p.dst.row_stride * size, size}};
  if (p.rows > p.cols && !is_row_copy(p)) {  // in the order of src
    std::swap(f.slow, f.fast);
    std::swap(f.from.slow, f.from.fast);
    std::swap(f.to.slow, f.to.fast);
  }
  if (!starts_at_elements(p)) return launch_flat<Halves>(f, context);
  with_size(p.type, [&]<int Size>() { launch_flat<Element<Size>>(f, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
