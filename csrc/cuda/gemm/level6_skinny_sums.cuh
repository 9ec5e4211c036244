// How `skinny` shares its work, and the way of its sums to C.
//
// Tiles of the last one to two waves are cut into equal shares of k (level5_stream_k.cuh), so that no
// multiprocessor is without copies in flight before all are. Sums of C are few here: the blocks leave those
// of tiles they share in the workspace, and a second kernel, which is there already when they are done, adds
// them in the order of k.
#pragma once

#include "cuda/gemm/level5_stream_k.cuh"
#include "cuda/gemm/level6_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Block tile (kM, kN): rows of the large operand, columns of the narrow one.
struct SkinnyShape {
  static constexpr int kM = 128, kN = 64;
  static constexpr int kConsumers = kM / 64, kConsumerThreads = 128 * kConsumers;  // warpgroups of 64 rows
  static constexpr int kLoaderThreads = 256, kThreads = kConsumerThreads + kLoaderThreads;
  static constexpr int kSums = kN / 2;  // of a consumer thread
  static constexpr int kStageBytes = (kM + kN) * 128, kStages = (220 << 10) / kStageBytes;
};

template <class T>
struct SkinnyArguments {
  using Acc = Accumulator<T>;
  Gemm<T> gemm;
  BoxOperand<T> large, narrow;
  bool large_is_b;
  bool by_units;                  // operands that the hardware cannot read
  int batch_large, batch_narrow;  // 0 where the batch shares the operand
  int tiles_m, tiles_n;           // along the large and the narrow operand
  StreamK work;
  Acc* partials;  // null: no tile is shared

  // How many blocks there are.
  int plan(int batch, Context& context) {
    using S = SkinnyShape;
    tiles_m = int(ceil_div(large.side, S::kM)), tiles_n = int(ceil_div(narrow.side, S::kN));
    const int64_t tiles = int64_t(batch) * tiles_m * tiles_n;
    const int steps = int(ceil_div(large.k, 128 / int(sizeof(T))));
    const int blocks = int(std::min<int64_t>(multiprocessors(), tiles * steps));
    work = plan_stream_k(tiles, steps, blocks);
    partials = nullptr;
    if (work.whole_tiles != tiles)
      partials = static_cast<Acc*>(context.allocate(size_t(blocks) * 2 * S::kM * S::kN * sizeof(Acc)));
    return blocks;
  }
};

// Tiles along the narrow operand follow each other: they read the same of the large one.
struct SkinnyPlace {
  int batch, row, column;

  template <class T>
  __device__ __forceinline__ SkinnyPlace(int tile, const SkinnyArguments<T>& g) {
    const int line = tile / g.tiles_n;
    batch = line / g.tiles_m;
    row = line % g.tiles_m * SkinnyShape::kM;
    column = tile % g.tiles_n * SkinnyShape::kN;
  }
};

// R / 4 groups of 8 columns, of each four sums a lane: to C. Reads of c are in flight together, 16 at a time.
template <class Rows, class Out, class T, int R>
__device__ __forceinline__ void store_sums_as(const SkinnyArguments<T>& g, const Accumulator<T> (&sum)[R],
                                              const SkinnyPlace& place, int warp) {
  const Result<T> result = g.gemm.at_batch(place.batch).result;
  const int lane = int(threadIdx.x) % 32;
  constexpr int kAtOnce = R < 16 ? R : 16;
  Accumulator<T> value[kAtOnce];
  FASTGEMM_UNROLL
  for (int first = 0; first < R; first += kAtOnce) {
    const auto each = [&](auto&& body) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = place.row + 16 * warp + Rows::row(lane / 4, i / 2 % 2);
        const int column = place.column + (first + i) / 4 * 8 + lane % 4 * 2 + i % 2;
        if (row < g.large.side && column < g.narrow.side)
          g.large_is_b ? body(i, column, row) : body(i, row, column);
      }
    };
    each([&](int i, int row, int column) {
      value[i] = result.template blend<Out>(row, column, sum[first + i]);
    });
    each([&](int i, int row, int column) { result.template put<Out>(row, column, value[i]); });
  }
}
template <class Rows, class T, int R>
__device__ __forceinline__ void store_sums(const SkinnyArguments<T>& g, const Accumulator<T> (&sum)[R],
                                           const SkinnyPlace& place, int warp) {
  if constexpr (Result<T>::kMayBeWide) {
    if (g.gemm.result.wide) return store_sums_as<Rows, float>(g, sum, place, warp);
  }
  store_sums_as<Rows, typename Result<T>::Narrow>(g, sum, place, warp);
}

// A block shares at most two tiles: the one that its share begins in the middle of, and the one that it
// begins but does not finish. Sums lie in the workspace as [block][which][warpgroup][8 columns][thread][4].
template <class T>
__device__ __forceinline__ Accumulator<T>* share_of(const SkinnyArguments<T>& g, int block, bool begins_tile,
                                                    int warpgroup, int group) {
  using S = SkinnyShape;
  const int64_t index = (int64_t(block * 2 + begins_tile) * S::kConsumers + warpgroup) * (S::kN / 8) + group;
  return g.partials + index * 512 + threadIdx.x % 128 * 4;
}

template <class T, int R>
__device__ __forceinline__ void hand_over(const SkinnyArguments<T>& g, const Accumulator<T> (&sum)[R],
                                          const Part& part, const SkinnyPlace& place) {
  FASTGEMM_UNROLL
  for (int i = 0; i < R; i += 4)
    if (place.column + 2 * i < g.narrow.side)
      store_vector(share_of(g, int(blockIdx.x), part.first == 0, int(threadIdx.x) / 128, i / 4),
                   Vector16<Accumulator<T>>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
}

// The block that has a stage of the shared tiles.
__device__ __forceinline__ int block_of(const StreamK& work, int64_t stage) {
  const int64_t longer = work.longer * (work.share + 1);
  return int(stage < longer ? stage / (work.share + 1) : work.longer + (stage - longer) / work.share);
}

// Adds what blocks have of a shared tile: 64 rows by 8 columns a block.
template <class Rows, class T>
__global__ void __launch_bounds__(128) gemm_skinny_add_kernel(const __grid_constant__ SkinnyArguments<T> g) {
  using Acc = Accumulator<T>;
  using S = SkinnyShape;
  const int shared_tile = int(blockIdx.x) / S::kConsumers, warpgroup = int(blockIdx.x) % S::kConsumers;
  const int group = int(blockIdx.y), tile = g.work.whole_tiles + shared_tile;
  const int64_t begin = int64_t(shared_tile) * g.work.steps;
  const int first = block_of(g.work, begin), last = block_of(g.work, begin + g.work.steps - 1);
  SkinnyPlace place(tile, g);
  place.row += 64 * warpgroup, place.column += 8 * group;
  wait_for_kernel_before();
  if (first == last || place.row >= g.large.side || place.column >= g.narrow.side) return;
  constexpr int kAtOnce = 8;  // in flight
  Acc sum[4] = {};
  FASTGEMM_NO_UNROLL
  for (int block = first; block <= last; block += kAtOnce) {
    Vector16<Acc> part[kAtOnce];
    FASTGEMM_UNROLL
    for (int i = 0; i < kAtOnce; ++i)
      if (block + i <= last) {
        const bool begins_tile = g.work.begin(block + i) <= begin;
        part[i] = load_vector<Vector16<Acc>>(share_of(g, block + i, begins_tile, warpgroup, group));
      }
    FASTGEMM_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (block + i > last) continue;
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j) sum[j] += part[i][j];
    }
  }
  store_sums<Rows>(g, sum, place, int(threadIdx.x) / 32);
}

template <class Rows, class T>
void add_shares(const SkinnyArguments<T>& g, int batch, Context& context) {
  using S = SkinnyShape;
  const int64_t tiles = int64_t(batch) * g.tiles_m * g.tiles_n - g.work.whole_tiles;
  const int64_t groups = ceil_div(std::min<int64_t>(g.narrow.side, S::kN), 8);
  launch<gemm_skinny_add_kernel<Rows, T>>(
      "skinny_add", {dim3(unsigned(tiles * S::kConsumers), unsigned(groups)), dim3(128), 0, true},
      context)(g);
}

}  // namespace fastgemm::FASTGEMM_TARGET
