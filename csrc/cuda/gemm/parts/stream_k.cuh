// How the rows of level 5 divide their work among persistent blocks.
//
// Tiles of equal work on 132 multiprocessors come in waves, and the last wave is seldom full: 512 tiles take
// the time of 528. So only whole waves are dealt out tile by tile; the tiles of the last one to two waves are
// cut into equal shares of stages (runs of k), one a block. A share may begin or end inside a tile. The block
// that has a tile's last stage adds the sums that the blocks before it left in the workspace, always in the
// same order, and writes C.
//
// A block walks its share backwards: it begins with the tile that it cannot finish and ends with the one that
// it finishes for others, so whom it waits for has long been done. It waits for blocks of lower index only.
#pragma once

#include "cuda/device/launch.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct StreamK {
  int whole_tiles;  // the first tiles, a multiple of the blocks; the others are shared
  int steps;        // stages of a tile
  int64_t share;    // stages of a block; the first `longer` blocks have one more
  int longer;

  __device__ __forceinline__ int64_t begin(int block) const {
    return block * share + (block < longer ? block : longer);
  }
};

inline StreamK plan_stream_k(int64_t tiles, int steps, int blocks) {
  const int64_t waves = tiles / blocks;
  StreamK s;
  s.whole_tiles = int(tiles % blocks == 0 ? tiles : waves > 1 ? (waves - 1) * blocks : 0);
  s.steps = steps;
  const int64_t stages = (tiles - s.whole_tiles) * steps;
  s.share = stages / blocks;
  s.longer = int(stages % blocks);
  return s;
}

// A run of stages of one tile.
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
  int tile_ = -1, last_tile_ = 0;  // the share, from its last tile down to its first
  int first_ = 0, end_ = 0;        // the first stage in last_tile_, the end in tile_
};

}  // namespace fastgemm::FASTGEMM_TARGET
