// The problems that need no tile. Copies of rows (a column-major src) serve every level and move the widest
// elements that the addresses allow. A narrow matrix, 3 x 10^7 or a batch of 4 x 4, is moved in the order of
// the side whose rows are short: that side is then contiguous, and the other has so few rows that L1 and L2
// keep their lines until they are used up.
#include <numeric>

#include "cuda/transpose/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Elements (matrix, slow, fast) of both sides, strides in bytes.
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

template <class T>
__global__ void __launch_bounds__(kFlatThreads) transpose_flat_kernel(Flat f) {
  const int64_t first = int64_t(blockIdx.x) * (kFlatThreads * kFlatUnroll) + threadIdx.x;
  const int64_t count = f.matrices * f.slow * f.fast;
  T value[kFlatUnroll];
  int64_t target[kFlatUnroll];
  FASTGEMM_UNROLL
  for (int u = 0; u < kFlatUnroll; ++u) {
    const int64_t index = first + u * kFlatThreads;
    if (index >= count) continue;
    const int64_t row = index / f.fast, fast = index - row * f.fast;
    const int64_t matrix = row / f.slow, slow = row - matrix * f.slow;
    value[u] = *reinterpret_cast<const T*>(f.src + f.from.offset(matrix, slow, fast));
    target[u] = f.to.offset(matrix, slow, fast);
  }
  FASTGEMM_UNROLL
  for (int u = 0; u < kFlatUnroll; ++u)
    if (first + u * kFlatThreads < count) *reinterpret_cast<T*>(f.dst + target[u]) = value[u];
}

// What a 16-byte element is that starts at a multiple of 8.
struct Halves {
  uint64_t half[2];
};

template <class T>
void launch_flat(const Flat& f, Context& context) {
  const int64_t blocks = ceil_div(f.matrices * f.slow * f.fast, kFlatThreads * kFlatUnroll);
  launch<transpose_flat_kernel<T>>("transpose_flat", {dim3(unsigned(blocks)), dim3(kFlatThreads)},
                                   context)(f);
}

// The same with rows of f.fast bytes as elements of `width` bytes.
void launch_copy(Flat f, int64_t width, Context& context) {
  f.fast /= width;
  f.from.fast = f.to.fast = width;
  if (f.fast == 0) return;
  switch (width) {
    case 1:
      return launch_flat<Element<1>>(f, context);
    case 2:
      return launch_flat<Element<2>>(f, context);
    case 4:
      return launch_flat<Element<4>>(f, context);
    case 8:
      return launch_flat<Element<8>>(f, context);
    default:
      return launch_flat<Element<16>>(f, context);
  }
}

bool is_row_copy(const TransposeProblem& p) { return p.src.row_stride == 1 || p.rows <= 1; }

void copy_rows(const TransposeProblem& p, Context& context) {
  const int64_t size = element_size(p.type);
  Flat f{.src = static_cast<const char*>(p.src.data),
         .dst = static_cast<char*>(p.dst.data),
         .matrices = p.batch,
         .slow = p.cols,
         .fast = p.rows * size,
         .from = {p.src.batch_stride * size, p.src.col_stride * size, 1},
         .to = {p.dst.batch_stride * size, p.dst.row_stride * size, 1}};
  // Rows without gaps on either side are one long row, and so are such matrices.
  const auto join = [&f](int64_t& outer, int64_t FlatSide::*stride) {
    if (outer > 1 && (f.from.*stride != f.fast || f.to.*stride != f.fast)) return false;
    f.fast *= outer;
    outer = 1;
    return true;
  };
  if (join(f.slow, &FlatSide::slow)) join(f.matrices, &FlatSide::matrix);

  // The widest element, at most 16 bytes, that every row starts at.
  int64_t width = 16;
  for (const int64_t offset :
       {int64_t(reinterpret_cast<uintptr_t>(f.src)), int64_t(reinterpret_cast<uintptr_t>(f.dst)),
        f.slow > 1 ? f.from.slow | f.to.slow : 0, f.matrices > 1 ? f.from.matrix | f.to.matrix : 0})
    width = std::gcd(width, offset);
  const bool single = f.slow == 1 && f.matrices == 1;
  if (!single) width = std::gcd(width, f.fast);
  const int64_t rest = f.fast % width;  // the tail of a single row, by bytes
  f.fast -= rest;
  launch_copy(f, width, context);
  f.src += f.fast, f.dst += f.fast, f.fast = rest;
  launch_copy(f, 1, context);
}

// Less than two sectors of a row on either side.
bool is_narrow(const TransposeProblem& p) { return std::min(p.rows, p.cols) * element_size(p.type) < 64; }

void transpose_flat(const TransposeProblem& p, Context& context) {
  const int64_t size = element_size(p.type);
  Flat f{.src = static_cast<const char*>(p.src.data),
         .dst = static_cast<char*>(p.dst.data),
         .matrices = p.batch,
         .slow = p.cols,
         .fast = p.rows,
         .from = {p.src.batch_stride * size, size, p.src.row_stride * size},
         .to = {p.dst.batch_stride * size, p.dst.row_stride * size, size}};
  if (p.rows > p.cols) {  // along the rows of src
    std::swap(f.slow, f.fast);
    std::swap(f.from.slow, f.from.fast);
    std::swap(f.to.slow, f.to.fast);
  }
  if (!starts_at_elements(p)) return launch_flat<Halves>(f, context);
  with_size(p.type, [&]<int Size>() { launch_flat<Element<Size>>(f, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
