// Stream-K (Osama et al., PPoPP 2023): how persistent blocks divide the tiles of C, and the fix-up, in which
// the block that finishes a tile adds the partial sums of the others. Contract: all orders are fixed, so that
// results are reproducible. A block waits only for blocks of lower index.
//
// Tiles of equal work are computed in waves of one tile per block, and the last wave is seldom full: 512
// tiles on 132 multiprocessors take the time of 528. So only whole waves are assigned tile by tile. The tiles
// of the last one or two waves are cut into equal shares of steps (stages of k, or chunks of stages), one
// share for each block:
//
//   block 0  | tile 0 | tile 3 | 6 6 6 6 |       a digit is a step of that shared tile
//   block 1  | tile 1 | tile 4 | 6 6 7 7 |       block 1 finishes tile 6, with block 0's sums,
//   block 2  | tile 2 | tile 5 | 7 7 7 7 |       and block 2 tile 7, with block 1's
//
// The block that has a tile's last step adds the sums that the blocks before it stored in the workspace, in
// order, and writes C. A block computes its share backwards: it begins with the tile that it does not finish
// and ends with the one that it finishes for others. So the sums that it needs were stored long before.
#pragma once

#include <span>

#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::FASTGEMM_TARGET {

struct StreamK {
  int whole_tiles;  // how many are not shared: the first ones, a multiple of the blocks
  int steps;        // steps per tile
  int64_t share;    // steps of a block; the first `longer` blocks have one more
  int longer;

  __device__ __forceinline__ int64_t begin(int block) const {
    return block * share + (block < longer ? block : longer);
  }
};

using plans::Sharing;

inline StreamK plan_stream_k(int64_t tiles, int steps, int blocks, const Sharing& sharing) {
  const plans::StreamKPlan plan = plans::plan_stream_k(tiles, steps, blocks, sharing);
  return {int(plan.whole_tiles), steps, plan.share, int(plan.longer)};
}

// Steps [first, end) of one tile.
struct Part {
  int tile, first, end;
};

// The parts of one block, in the order in which it computes them.
class Parts {
 public:
  __device__ __forceinline__ Parts(const StreamK& plan, int block, int blocks)
      : steps_(plan.steps), stride_(blocks), whole_(block), whole_end_(plan.whole_tiles) {
    const int64_t begin = plan.begin(block), end = plan.begin(block + 1);
    if (begin == end) return;  // no share
    last_tile_ = plan.whole_tiles + int(begin / steps_);
    first_ = int(begin % steps_);
    tile_ = plan.whole_tiles + int((end - 1) / steps_);
    end_ = int((end - 1) % steps_) + 1;
  }

  __device__ __forceinline__ bool next(Part& part) {
    if (whole_ < whole_end_) {
      part = {whole_, 0, steps_};
      whole_ += stride_;
      return true;
    }
    if (tile_ < last_tile_) return false;
    part = {tile_, tile_ == last_tile_ ? first_ : 0, end_};
    --tile_;
    end_ = steps_;
    return true;
  }

 private:
  int steps_, stride_, whole_, whole_end_;
  int tile_ = -1, last_tile_ = 0;  // the next tile, and the last (the one with the lowest number)
  int first_ = 0, end_ = 0;        // the first step in last_tile_, the end of the steps in tile_
};

// Computes part i of a block, in the order of Parts. It keeps no state, which would cost registers in the
// main loop. Returns false after the last part.
__device__ __forceinline__ bool part_of(const StreamK& plan, int i, Part& part) {
  const int block = int(blockIdx.x), blocks = int(gridDim.x), whole = block + i * blocks;
  if (whole < plan.whole_tiles) {
    part = {whole, 0, plan.steps};
    return true;
  }
  const int64_t begin = plan.begin(block), end = plan.begin(block + 1);
  if (begin == end) return false;  // no share
  const int last = int((end - 1) / plan.steps), tile = last - (i - plan.whole_tiles / blocks);
  if (tile < int(begin / plan.steps)) return false;
  part = {plan.whole_tiles + tile, int(max(begin - int64_t(tile) * plan.steps, int64_t(0))),
          tile == last ? int((end - 1) % plan.steps) + 1 : plan.steps};
  return true;
}

// How the tiles of all matrices of a batch are assigned to blocks, and the workspace of blocks that share
// tiles.
template <class Acc>
struct Schedule {
  int tiles_m, tiles_n;  // tiles per matrix
  StreamK work;
  Acc* partials;    // [block]: partial sums of the tile that the block does not finish
  uint32_t* flags;  // [block][group of warps]: 1 when these sums are stored
};

// Plans the work of a schedule whose tiles_m and tiles_n are set, and allocates its workspace. Returns the
// flags, which must be zero before the kernel begins.
template <class Acc>
std::span<uint32_t> share(Schedule<Acc>& s, int64_t tiles, int steps, int blocks, Sharing sharing,
                          int tile_sums, int groups, Context& context) {
  s.work = plan_stream_k(tiles, steps, blocks, sharing);
  s.partials = nullptr, s.flags = nullptr;
  if (s.work.whole_tiles == tiles) return {};
  const size_t flags = size_t(blocks) * size_t(groups);
  s.partials = static_cast<Acc*>(context.allocate(size_t(blocks) * size_t(tile_sums) * sizeof(Acc)));
  s.flags = static_cast<uint32_t*>(context.allocate(flags * sizeof(uint32_t)));
  return {s.flags, flags};
}

// How a group of THREADS threads (whole warps) stores and adds partial sums, N for each thread. Their layout
// is [N / WIDTH][thread][WIDTH], so that every access of a warp covers whole lines.
template <int THREADS, int WIDTH>
struct PartialSums {
  template <class Acc, int N>
  __device__ __forceinline__ static void put(Acc* to, const Acc (&sum)[N]) {
    FASTGEMM_UNROLL
    for (int i = 0; i < N; i += WIDTH) {
      Vector<Acc, WIDTH> v;
      FASTGEMM_UNROLL
      for (int e = 0; e < WIDTH; ++e) v[e] = sum[i + e];
      store_vector(to + i * THREADS + threadIdx.x * WIDTH, v);
    }
  }
  template <class Acc, int N>
  __device__ __forceinline__ static void add(Acc (&sum)[N], const Acc* from) {
    FASTGEMM_UNROLL
    for (int i = 0; i < N; i += WIDTH) {
      const auto v = load_vector<Vector<Acc, WIDTH>>(from + i * THREADS + threadIdx.x * WIDTH);
      FASTGEMM_UNROLL
      for (int e = 0; e < WIDTH; ++e) sum[i + e] += v[e];
    }
  }
};

// The first half of the fix-up: stores a thread's partial sums for the block that finishes the tile. sync()
// is a barrier of the threads that share the flag. All lanes of their first warp set the flag. If only one
// lane did, the compiler would take the warp for divergent after that branch, and keep the pipeline's state
// in ordinary instead of uniform registers.
template <class Sums, class Acc, int N, class Sync>
__device__ __forceinline__ void hand_over(const Schedule<Acc>& g, const Acc (&sum)[N], int tile_sums,
                                          int flag, bool first_warp, Sync&& sync) {
  Sums::put(g.partials + int64_t(blockIdx.x) * tile_sums, sum);
  sync();
  if (first_warp) store_release(&g.flags[flag], 1);
}

// The second half of the fix-up: adds the partial sums of the blocks that have earlier steps of the tile, one
// block after another, from the nearest to the farthest.
template <class Sums, class Acc, int N>
__device__ __forceinline__ void collect(const Schedule<Acc>& g, Acc (&sum)[N], const Part& part,
                                        int tile_sums, int groups = 1, int group = 0) {
  const int64_t tile_begin = int64_t(part.tile - g.work.whole_tiles) * g.work.steps;
  int block = int(blockIdx.x);
  do {
    --block;
    while (__any_sync(0xffffffffu, load_acquire(&g.flags[block * groups + group]) == 0)) spin_wait();
    Sums::add(sum, g.partials + int64_t(block) * tile_sums);
  } while (g.work.begin(block) > tile_begin);
}

}  // namespace fastgemm::FASTGEMM_TARGET
