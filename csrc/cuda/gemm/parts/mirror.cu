// The upper triangle of a symmetric matrix as a copy of its lower one: tiles pass through shared memory, so
// that both sides are coalesced.
#include "core/mirror.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256;
template <class Element>
constexpr int kTile = sizeof(Element) > 8 ? 32 : 64;  // elements a side

// Memory from outside torch may start at any multiple of a part.
template <class Part>
struct Complex {
  Part re, im;
};

template <class Element>
struct Unchanged {
  using Moved = Element;
  __device__ __forceinline__ static Element across(const Element& x) { return x; }
  __device__ __forceinline__ static Element diagonal(const Element& x) { return x; }
};
template <class Part>
struct Conjugated {
  using Moved = Complex<Part>;
  static constexpr Part kSign = Part(Part(1) << (8 * sizeof(Part) - 1));
  __device__ __forceinline__ static Moved across(const Moved& x) { return {x.re, Part(x.im ^ kSign)}; }
  __device__ __forceinline__ static Moved diagonal(const Moved& x) { return {x.re, Part(0)}; }
};

// The tile of the lower triangle with this number: row by row, as in  0
//                                                                     1 2
//                                                                     3 4 5
struct LowerTile {
  int row, column;
  __device__ __forceinline__ explicit LowerTile(int64_t number) {
    row = int((sqrtf(8.f * float(number) + 1.f) - 1.f) / 2.f);  // or beside it, where float32 rounds
    while (int64_t(row) * (row + 1) / 2 > number) --row;
    while (int64_t(row + 1) * (row + 2) / 2 <= number) ++row;
    column = int(number - int64_t(row) * (row + 1) / 2);
  }
};

// out: (n, n) for each matrix of the batch. A warp reads and writes 32 neighbours of a row.
template <class Of>
__global__ void __launch_bounds__(kThreads)
    mirror_kernel(typename Of::Moved* out, int64_t n, int64_t row_stride, int64_t batch_stride) {
  using Element = typename Of::Moved;
  constexpr int kSide = kTile<Element>;
  FASTGEMM_SHARED Element staged[kSide][kSide + 1];
  const LowerTile tile(blockIdx.x);
  Element* const x = out + int64_t(blockIdx.y) * batch_stride;
  const int64_t row = int64_t(tile.row) * kSide, column = int64_t(tile.column) * kSide;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  FASTGEMM_UNROLL
  for (int i = warp; i < kSide; i += kThreads / 32) FASTGEMM_UNROLL
  for (int j = lane; j < kSide; j += 32)
    if (row + i < n && column + j < n) staged[i][j] = x[(row + i) * row_stride + column + j];
  __syncthreads();
  FASTGEMM_UNROLL
  for (int i = warp; i < kSide; i += kThreads / 32) FASTGEMM_UNROLL
  for (int j = lane; j < kSide; j += 32) {
    if (column + i >= n || row + j >= n || (tile.row == tile.column && j < i)) continue;
    const bool on_diagonal = tile.row == tile.column && i == j;
    x[(column + i) * row_stride + row + j] =
        on_diagonal ? Of::diagonal(staged[j][i]) : Of::across(staged[j][i]);
  }
}

template <class Of>
void mirror_elements(const Mirror& m, Context& context) {
  const int64_t tiles = ceil_div(m.n, kTile<typename Of::Moved>), lower = tiles * (tiles + 1) / 2;
  constexpr int64_t kMostBlocksY = 65535;
  for (int64_t first = 0; first < m.batch; first += kMostBlocksY) {
    const dim3 grid(unsigned(lower), unsigned(std::min(kMostBlocksY, m.batch - first)));
    launch<mirror_kernel<Of>>("mirror", {grid, dim3(kThreads)}, context)(
        static_cast<typename Of::Moved*>(m.out.data) + first * m.out.batch_stride, m.n, m.out.row_stride,
        m.out.batch_stride);
  }
}

}  // namespace

void mirror(const Mirror& m, Context& context) {
  if (m.batch * m.n == 0) return;
  if (m.conjugated) {
    if (m.bytes == 4) return mirror_elements<Conjugated<uint16_t>>(m, context);
    return m.bytes == 8 ? mirror_elements<Conjugated<uint32_t>>(m, context)
                        : mirror_elements<Conjugated<uint64_t>>(m, context);
  }
  const bool aligned = reinterpret_cast<uintptr_t>(m.out.data) % uintptr_t(m.bytes) == 0;
  switch (m.bytes) {
    case 1:
      return mirror_elements<Unchanged<uint8_t>>(m, context);
    case 2:
      return mirror_elements<Unchanged<uint16_t>>(m, context);
    case 4:
      return aligned ? mirror_elements<Unchanged<uint32_t>>(m, context)
                     : mirror_elements<Unchanged<Complex<uint16_t>>>(m, context);
    case 8:
      return aligned ? mirror_elements<Unchanged<uint64_t>>(m, context)
                     : mirror_elements<Unchanged<Complex<uint32_t>>>(m, context);
    default:
      return mirror_elements<Unchanged<Complex<uint64_t>>>(m, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
