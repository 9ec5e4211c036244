// Level 6: asynchrony. cp.async brings tiles into shared memory past registers and L1: a block asks for all
// the tiles that it will work on at once, and while one is transposed and written, the next ones are on their
// way. A tile arrives as it lies in src, the aligned units of 16 bytes that cover its rows, one more than
// level 5 reads where rows begin in the middle of a unit. Threads then take V units each at whatever offset
// their row has, so that every alignment moves by 16 bytes on both sides, for every element width. (A tensor
// map would need rows that begin at multiples of 16 bytes.)
#include "cuda/device/async_copy.cuh"
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Rows of src as they arrive. `shifted`: some row begins in the middle of a unit.
template <int Size, int Down, int Across, int Threads, bool shifted>
struct Arrival {
  using Shape = Tile<Size, Down, Across, Threads>;
  static constexpr int kPitch = Across + shifted;
  static constexpr int kBytes = Shape::kRows * kPitch * 16;

  Unit* units;  // (kRows, kPitch)

  // Unit `u` of row i, whose `bytes` begin at `row`. Reads nothing before the matrix or after its last row.
  __device__ __forceinline__ void copy_unit(const Transpose& t, const char* row, int bytes, int i,
                                            int u) const {
    Unit* const to = &units[i * kPitch + u];
    if constexpr (!shifted) return copy_async<16>(to, row + u * 16, max(0, min(16, bytes - u * 16)));
    const char* const from = row - reinterpret_cast<uintptr_t>(row) % 16 + u * 16;
    if (from >= t.src) return copy_async<16>(to, from, max(0, min(16, int(row + bytes - from))));
    // Only the first unit of a matrix begins before it.
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
    if constexpr (shifted) {
      for (int i = int(threadIdx.x); i < Shape::kRows; i += Threads)
        copy_unit(t, first + i * t.src_stride, bytes_of(i), i, Across);
    }
  }

  // The block (down, across) of V x V elements.
  __device__ __forceinline__ void take(const Transpose& t, const typename Shape::Part& part, int down,
                                       int across, Unit (&block)[Shape::V]) const {
    // All that counts of an address here is where in a unit it lies.
    const uint32_t stride = uint32_t(t.src_stride);
    uint32_t row = uint32_t(reinterpret_cast<uintptr_t>(t.src)) + uint32_t(part.col) * Size +
                   (uint32_t(part.row) + down * Shape::V) * stride;
    FASTGEMM_UNROLL
    for (int k = 0; k < Shape::V; ++k, row += stride) {
      const Unit* const unit = &units[(down * Shape::V + k) * kPitch + across];
      block[k] = shifted ? bytes_at<Size>(unit[0], unit[shifted], int(row % 16)) : unit[0];
    }
  }
};

// A block works on `Steps` tiles, `Stages` of which are in shared memory or on their way there.
template <int Size, int Down, int Across, int Threads, int Stages, int Steps, bool shifted_>
struct Pipeline {
  using Shape = Tile<Size, Down, Across, Threads>;
  using Stage = Arrival<Size, Down, Across, Threads, shifted_>;
  static constexpr int kThreads = Threads, kStages = Stages, kSteps = Steps;
  static constexpr int kSharedBytes = Stages * Stage::kBytes;
  // Blocks on a multiprocessor, as far as registers go: 1024 threads have 64 each, 512 have 128.
  static constexpr int kResident = (Size == 1 ? 512 : 1024) / Threads;
  static_assert(kResident >= 1 && Stages >= 1 && Steps >= Stages);
};

template <int Size, class P>
__global__ void __launch_bounds__(P::kThreads, P::kResident)
    transpose_pipelined_kernel(Transpose batch, Tiles tiles, uint32_t count) {
  using Shape = typename P::Shape;
  using Stage = typename P::Stage;
  FASTGEMM_DYNAMIC_SHARED(Unit, units);
  const auto stage = [&](int step) { return units + step % P::kStages * (Stage::kBytes / 16); };
  const auto fetch = [&](int step) {
    const uint64_t index = uint64_t(blockIdx.x) * P::kSteps + step;
    if (step < P::kSteps && index < count) {
      const Tiles::Place place = tiles.in_bands(uint32_t(index));
      const Transpose t = batch.at_matrix(place.matrix);
      Stage{stage(step)}.fetch(t, Shape::part_of(t, tiles, place));
    }
    commit_async_copies();  // a group for every step, so that they can be counted
  };

  for (int step = 0; step < P::kStages; ++step) fetch(step);
  FASTGEMM_NO_UNROLL
  for (int step = 0; step < P::kSteps; ++step) {
    const uint64_t index = uint64_t(blockIdx.x) * P::kSteps + step;
    if (index >= count) break;
    const Tiles::Place place = tiles.in_bands(uint32_t(index));
    const Transpose t = batch.at_matrix(place.matrix);
    const auto part = Shape::part_of(t, tiles, place);
    const int across = int(threadIdx.x) % Shape::kAcross, down = int(threadIdx.x) / Shape::kAcross;
    constexpr int kBlocksApart = P::kThreads / Shape::kAcross;

    wait_async_copies<P::kStages - 1>();
    __syncthreads();  // everyone's copies have landed
    Unit block[Shape::kBlocks][Shape::V];
    FASTGEMM_UNROLL
    for (int n = 0; n < Shape::kBlocks; ++n) {
      Stage{stage(step)}.take(t, part, down + n * kBlocksApart, across, block[n]);
      transpose_block<Size>(block[n]);
    }
    __syncthreads();  // everyone has taken: the tile replaces what arrived
    const Shape tile{stage(step)};
    FASTGEMM_UNROLL
    for (int n = 0; n < Shape::kBlocks; ++n) tile.put(down + n * kBlocksApart, across, block[n]);
    __syncthreads();
    tile.store(t, part, tiles.step);
    if constexpr (P::kSteps > P::kStages) __syncthreads();  // everyone has stored
    fetch(step + P::kStages);
  }
}

template <int Size, class P>
void launch_pipelined(const Transpose& all, int64_t batch, Context& context, uint32_t band = UINT32_MAX) {
  launch_tiles(
      all, batch, P::Shape::size_for(all, batch),
      [&](const Transpose& t, const Tiles& tiles, unsigned count) {
        const LaunchShape shape{dim3(unsigned(ceil_div(count, P::kSteps))), dim3(P::kThreads),
                                P::kSharedBytes};
        launch<transpose_pipelined_kernel<Size, P>>("pipelined", shape, context)(t, tiles, count);
      },
      band);
}

template <int Size, bool shifted>
using PipelinedShape = Pipeline<Size, 16, Size <= 4 ? 16 : 4 * Size, 256, 1, 1, shifted>;

bool has_shifted_rows(const Transpose& t, int64_t batch) {
  return !is_aligned(t.src, 16) || t.src_stride % 16 != 0 || (batch > 1 && t.src_batch_stride % 16 != 0);
}

void transpose_pipelined(const TransposeProblem& p, Context& context) {
  run_transpose<Narrow::flat>(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    if (has_shifted_rows(all, batch))
      launch_pipelined<Size, PipelinedShape<Size, true>>(all, batch, context);
    else
      launch_pipelined<Size, PipelinedShape<Size, false>>(all, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
