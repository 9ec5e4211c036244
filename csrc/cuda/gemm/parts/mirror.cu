// Copies the lower triangle of a symmetric matrix to the upper one. Tiles go through shared memory, so that
// reads and writes are coalesced. Rows that begin at multiples of 16 bytes are copied in the tiles of the
// transpose (cuda/transpose/tile.cuh), 16 bytes at a time. Other rows, and complex elements to be conjugated,
// are copied element by element, at a quarter of that rate. The kernel itself waits for the product before
// it, which hides its launch.
#include "core/mirror.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/sync.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256;
template <class Element>
constexpr int kTile = sizeof(Element) > 8 ? 32 : 64;  // elements along each side

// Memory that torch did not allocate may begin at any multiple of a real or imaginary part. Then the parts
// are copied one by one.
template <class Part, bool aligned>
struct alignas(aligned ? 2 * sizeof(Part) : sizeof(Part)) Complex {
  Part re, im;
};

// How elements are copied: unchanged, or conjugated, which makes the diagonal real.
template <class Element>
struct Unchanged {
  using Type = Element;
  __device__ __forceinline__ static Element read(const Element& x) { return x; }
  __device__ __forceinline__ static void stage(Element& to, const Element& x, bool) { to = x; }
  __device__ __forceinline__ static void store(Element& to, const Element& x) { to = x; }
};
template <class Part, bool aligned, bool conjugated>
struct Complexes {
  using Type = Complex<Part, aligned>;
  static constexpr Part kSign = conjugated ? Part(Part(1) << (8 * sizeof(Part) - 1)) : Part(0);
  __device__ __forceinline__ static Type read(const Type& x) {
    if constexpr (aligned)
      return x;
    else
      return {x.re, x.im};
  }
  __device__ __forceinline__ static void stage(Type& to, const Type& x, bool on_diagonal) {
    store(to, {x.re, conjugated && on_diagonal ? Part(0) : Part(x.im ^ kSign)});
  }
  __device__ __forceinline__ static void store(Type& to, const Type& x) {
    if constexpr (aligned) {
      to = x;
    } else {
      to.re = x.re;
      to.im = x.im;
    }
  }
};

// The tile of the lower triangle with this number. Tiles are numbered row by row:
//
//   0
//   1 2
//   3 4 5
struct LowerTile {
  int row, column;
  __device__ __forceinline__ explicit LowerTile(int64_t number) {
    row = int((sqrtf(8.f * float(number) + 1.f) - 1.f) / 2.f);  // or a neighbour of it, where float32 rounds
    while (int64_t(row) * (row + 1) / 2 > number) --row;
    while (int64_t(row + 1) * (row + 2) / 2 <= number) ++row;
    column = int(number - int64_t(row) * (row + 1) / 2);
  }
};

// `out` is (n, n) for each matrix of the batch. A warp reads and writes 32 neighbours in a row.
template <class Of>
__global__ void __launch_bounds__(kThreads, 4)
    mirror_kernel(typename Of::Type* out, int64_t n, int64_t row_stride, int64_t batch_stride) {
  using Element = typename Of::Type;
  constexpr int kSide = kTile<Element>;
  FASTGEMM_SHARED Element staged[kSide][kSide + 1];
  const LowerTile tile(blockIdx.x);
  Element* const x = out + int64_t(blockIdx.y) * batch_stride;
  const int64_t row = int64_t(tile.row) * kSide, column = int64_t(tile.column) * kSide;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const bool on_diagonal = tile.row == tile.column;
  grid_dependency_wait();
  const auto for_each_element = [&](auto&& body) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kSide; i += kThreads / 32) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kSide; j += 32) body(warp + i, lane + j);
    }
  };
  for_each_element([&](int i, int j) {
    if (row + i >= n || column + j >= n) return;
    const Element read = Of::read(x[(row + i) * row_stride + column + j]);
    Of::stage(staged[i][j], read, on_diagonal && i == j);
  });
  __syncthreads();
  for_each_element([&](int i, int j) {
    if (column + i >= n || row + j >= n || (on_diagonal && j < i)) return;
    Of::store(x[(column + i) * row_stride + row + j], Of::read(staged[j][i]));
  });
}

// Tiles of (256, 256) bytes, (128, 128) 16-bit elements, (64, 64) words, (32, 32) elements of 8 bytes, or
// (16, 16) of 16 bytes.
template <int Size>
using SquareTile = Tile<Size, 16, 16, kThreads>;

// `matrix` describes a transpose whose source and destination are the same matrix.
template <int Size>
__global__ void __launch_bounds__(kThreads) mirror_tiles_kernel(Transpose matrix) {
  using Square = SquareTile<Size>;
  static_assert(Square::kRows == Square::kCols);
  FASTGEMM_DYNAMIC_SHARED(Unit, units);
  const Square tile{units};
  const LowerTile place(blockIdx.x);
  const Transpose t = matrix.at_matrix(blockIdx.y);
  constexpr int kSide = Square::kRows;
  const int64_t row = int64_t(place.row) * kSide, column = int64_t(place.column) * kSide;
  const typename Square::Part part{row, column, int(min(t.rows - row, int64_t(kSide))),
                                   int(min(t.cols - column, int64_t(kSide)))};
  grid_dependency_wait();
  tile.load(t, part);
  __syncthreads();
  if (place.row != place.column) return tile.store(t, part, 0);
  for (int j = int(threadIdx.x) / 32; j < part.cols; j += kThreads / 32)
    for (int i = j + 1 + int(threadIdx.x) % 32; i < part.rows; i += 32)
      t.to<Element<Size>>(row + i, column + j) = tile.element(i, j);
}

constexpr int64_t kMostBlocksY = 65535;

template <int Size>
void mirror_tiles(const Mirror& m, Context& context) {
  using Square = SquareTile<Size>;
  char* const x = static_cast<char*>(m.out.data);
  const int64_t stride = m.out.row_stride * Size, batch_stride = m.out.batch_stride * Size;
  const Transpose all{x, x, m.n, m.n, stride, stride, batch_stride, batch_stride};
  const int64_t tiles = ceil_div(m.n, Square::kRows), lower = tiles * (tiles + 1) / 2;
  for (int64_t first = 0; first < m.batch; first += kMostBlocksY) {
    const dim3 grid(unsigned(lower), unsigned(std::min(kMostBlocksY, m.batch - first)));
    launch<mirror_tiles_kernel<Size>>("mirror", {grid, dim3(kThreads), Square::kBytes, true},
                                      context)(all.at_matrix(first));
  }
}

bool moves_units(const Mirror& m) {
  const int64_t strides = m.out.row_stride | (m.batch > 1 ? m.out.batch_stride : 0);
  return is_aligned(static_cast<const char*>(m.out.data), 16) && strides * m.bytes % 16 == 0;
}

template <class Of>
void mirror_elements(const Mirror& m, Context& context) {
  const int64_t tiles = ceil_div(m.n, kTile<typename Of::Type>), lower = tiles * (tiles + 1) / 2;
  for (int64_t first = 0; first < m.batch; first += kMostBlocksY) {
    const dim3 grid(unsigned(lower), unsigned(std::min(kMostBlocksY, m.batch - first)));
    launch<mirror_kernel<Of>>("mirror", {grid, dim3(kThreads), 0, true}, context)(
        static_cast<typename Of::Type*>(m.out.data) + first * m.out.batch_stride, m.n, m.out.row_stride,
        m.out.batch_stride);
  }
}

// Copies complex elements as elements of Whole where these are aligned, otherwise part by part.
template <class Whole, class Part>
void mirror_pairs(const Mirror& m, Context& context) {
  is_aligned(static_cast<const char*>(m.out.data), sizeof(Whole))
      ? mirror_elements<Unchanged<Whole>>(m, context)
      : mirror_elements<Complexes<Part, false, false>>(m, context);
}
template <class Part>
void mirror_conjugates(const Mirror& m, Context& context) {
  is_aligned(static_cast<const char*>(m.out.data), 2 * sizeof(Part))
      ? mirror_elements<Complexes<Part, true, true>>(m, context)
      : mirror_elements<Complexes<Part, false, true>>(m, context);
}

}  // namespace

void mirror(const Mirror& m, Context& context) {
  if (m.batch * m.n == 0) return;
  if (m.conjugated) {
    if (m.bytes == 4) return mirror_conjugates<uint16_t>(m, context);
    return m.bytes == 8 ? mirror_conjugates<uint32_t>(m, context) : mirror_conjugates<uint64_t>(m, context);
  }
  if (moves_units(m)) {
    switch (m.bytes) {
      case 1:
        return mirror_tiles<1>(m, context);
      case 2:
        return mirror_tiles<2>(m, context);
      case 4:
        return mirror_tiles<4>(m, context);
      case 8:
        return mirror_tiles<8>(m, context);
      default:
        return mirror_tiles<16>(m, context);
    }
  }
  switch (m.bytes) {
    case 1:
      return mirror_elements<Unchanged<uint8_t>>(m, context);
    case 2:
      return mirror_elements<Unchanged<uint16_t>>(m, context);
    case 4:
      return mirror_pairs<uint32_t, uint16_t>(m, context);
    case 8:
      return mirror_pairs<uint64_t, uint32_t>(m, context);
    default:
      return mirror_pairs<Complex<uint64_t, true>, uint64_t>(m, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
