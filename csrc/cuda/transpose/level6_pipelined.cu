// Level 6: asynchrony. Blocks stay for many tiles, and while one tile is transposed and written, cp.async
// brings the next ones into shared memory past registers and L1. A tile of src arrives as it lies: the
// aligned units of 16 bytes that cover its rows, one more than level 5 reads where rows start in the middle
// of a unit. Threads then take V units each at whatever offset their row has, so that every alignment moves
// by 16 bytes, on both sides and for every element width. (A tensor map would need rows that start at
// multiples of 16 bytes.)
#include "cuda/device/async_copy.cuh"
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The rows of a tile as they lie in src, from the unit that holds their first byte on.
template <int Size, int Down, int Across, int Threads>
struct Arrival {
  using Shape = Tile<Size, Down, Across, Threads>;
  static constexpr int kPitch = Across + 1;
  static constexpr int kBytes = Shape::kRows * kPitch * 16;

  Unit* units;  // (kRows, kPitch)

  // Unit `u` of row i, whose `bytes` begin at `row`. Reads nothing before the matrix or after its last row.
  __device__ __forceinline__ void copy_unit(const Transpose& t, const char* row, int bytes, int i,
                                            int u) const {
    const char* const from = row - reinterpret_cast<uintptr_t>(row) % 16 + u * 16;
    Unit* const to = &units[i * kPitch + u];
    if (from >= t.src) return copy_async<16>(to, from, max(0, min(16, int(row + bytes - from))));
    // Only the first unit of a matrix starts before it.
    for (int e = 0; e < kPerUnit<Size>; ++e)
      reinterpret_cast<Element<Size>*>(to)[e] = from + e * Size >= t.src
                                                    ? *reinterpret_cast<const Element<Size>*>(from + e * Size)
                                                    : Element<Size>{};
  }

  __device__ __forceinline__ void fetch(const Transpose& t, const typename Shape::Part& part) const {
    const char* const first = t.src + part.row * t.src_stride + part.col * Size;
    // Rows below the matrix end before their first unit begins: zeros.
    const auto bytes_of = [&](int i) { return i < part.rows ? part.cols * Size : -16; };
    FASTGEMM_UNROLL
    for (int i = int(threadIdx.x) / Across; i < Shape::kRows; i += Threads / Across)
      copy_unit(t, first + i * t.src_stride, bytes_of(i), i, int(threadIdx.x) % Across);
    if (is_aligned(first, 16) && t.src_stride % 16 == 0) return;
    for (int i = int(threadIdx.x); i < Shape::kRows; i += Threads)
      copy_unit(t, first + i * t.src_stride, bytes_of(i), i, Across);
  }

  // The block (down, across) of V x V elements.
  __device__ __forceinline__ void take(const Transpose& t, const typename Shape::Part& part, int down,
                                       int across, Unit (&block)[Shape::V]) const {
    FASTGEMM_UNROLL
    for (int k = 0; k < Shape::V; ++k) {
      const int i = down * Shape::V + k;
      const Unit* const unit = &units[i * kPitch + across];
      const uintptr_t row =
          reinterpret_cast<uintptr_t>(t.src) + (part.row + i) * t.src_stride + part.col * Size;
      block[k] = unit[0];
      if (row % 16 != 0) block[k] = bytes_at<Size>(unit[0], unit[1], int(row % 16));
    }
  }
};

template <int Size, int Down, int Across, int Threads, int Stages>
struct Pipeline {
  using Shape = Tile<Size, Down, Across, Threads>;
  using Stage = Arrival<Size, Down, Across, Threads>;
  static constexpr int kThreads = Threads, kStages = Stages;
  static constexpr int kSharedBytes = Shape::kBytes + Stages * Stage::kBytes;
  // Of 228 KB (sm_90), of which every block takes 1 KB for itself.
  static constexpr int kResident = std::min(228 * 1024 / (kSharedBytes + 1024), 2048 / Threads);
  static_assert(kResident >= 1 && Stages >= 2);
};

template <int Size, class P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    transpose_pipelined_kernel(Transpose batch, Tiles tiles, uint32_t count) {
  using Shape = typename P::Shape;
  using Stage = typename P::Stage;
  FASTGEMM_DYNAMIC_SHARED(Unit, units);
  const Shape tile{units};
  const auto stage = [&](uint32_t step) {
    return Stage{units + (Shape::kBytes + int(step % P::kStages) * Stage::kBytes) / 16};
  };
  const auto fetch = [&](uint32_t step) {
    const uint64_t index = blockIdx.x + uint64_t(step) * gridDim.x;
    if (index < count) {
      const Tiles::Place place = tiles.down_columns(uint32_t(index));
      const Transpose t = batch.at_matrix(place.matrix);
      stage(step).fetch(t, Shape::part_of(t, place));
    }
    commit_async_copies();  // a group for every step, so that they can be counted
  };

  for (uint32_t step = 0; step < P::kStages - 1; ++step) fetch(step);
  uint32_t step = 0;
  for (uint32_t index = blockIdx.x; index < count; index += gridDim.x, ++step) {
    wait_async_copies<P::kStages - 2>();
    __syncthreads();  // everyone's copies have landed, and the last tile has been read by all
    fetch(step + P::kStages - 1);

    const Tiles::Place place = tiles.down_columns(index);
    const Transpose t = batch.at_matrix(place.matrix);
    const auto part = Shape::part_of(t, place);
    FASTGEMM_UNROLL
    for (int n = 0; n < Shape::kBlocks; ++n) {
      const int across = int(threadIdx.x) % Shape::kAcross;
      const int down = int(threadIdx.x) / Shape::kAcross + n * (P::kThreads / Shape::kAcross);
      Unit block[Shape::V];
      stage(step).take(t, part, down, across, block);
      transpose_block<Size>(block);
      tile.put(down, across, block);
    }
    __syncthreads();
    tile.store(t, part);
  }
}

template <int Size, class P>
void launch_pipelined(const Transpose& all, int64_t batch, Context& context) {
  launch_tiles(all, batch, P::Shape::kRows, P::Shape::kCols,
               [&](const Transpose& t, const Tiles& tiles, unsigned count) {
                 const unsigned blocks = std::min(count, unsigned(multiprocessors() * P::kResident));
                 launch<transpose_pipelined_kernel<Size, P>>(
                     "pipelined", {dim3(blocks), dim3(P::kThreads), P::kSharedBytes}, context)(t, tiles,
                                                                                               count);
               });
}

template <int Size>
using PipelinedShape = std::conditional_t<Size == 1, Pipeline<1, 16, 8, 128, 2>,
                                          Pipeline<Size, 16, Size <= 4 ? 16 : 4 * Size, 256, 2>>;

void transpose_pipelined(const TransposeProblem& p, Context& context) {
  run_transpose<Narrow::flat>(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    launch_pipelined<Size, PipelinedShape<Size>>(all, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
