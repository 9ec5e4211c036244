// A schedule of `skinny`: blocks compute whole tiles, or equal shares of the stages of all tiles. In the
// second case, a second kernel adds the partial sums of shared tiles. Contract: each_part() gives the parts
// of a block, in ascending order; block_of() says which block computes a stage. A block shares at most two
// tiles: its share begins inside one and ends inside the other.
//
//   all stages of all tiles   | tile 0      | tile 1      | tile 2      |
//   block                     | 0       | 1       | 2       | 3       |     equal shares
//   in the workspace            0         1 1       2 2       3
#pragma once

#include "cuda/gemm/parts/schedules/stream_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A tile has `steps` stages. A block has `share` stages, and the first `longer` blocks have `unit` stages
// more. `unit` is 1, or all stages of a tile if no tile is shared. In the latter case neighbouring blocks
// have neighbouring tiles, which lie next to each other in memory or read the same rows of the large operand.
struct Shares {
  int steps, share, longer, unit;

  __device__ __forceinline__ int begin(int block) const {
    return unit > 1 ? block * steps : block * share + min(block, longer);
  }
  __device__ __forceinline__ int count(int block) const { return share + (block < longer ? unit : 0); }
  // The distance from a tile of a block to its next one.
  __device__ __forceinline__ int apart(int blocks) const { return unit > 1 ? blocks : 1; }
  // The block that computes this stage, where unit is 1.
  __device__ __forceinline__ int block_of(int stage) const {
    const int in_longer = longer * (share + 1);
    return stage < in_longer ? stage / (share + 1) : longer + (stage - in_longer) / share;
  }
  // Calls body(part) for the parts of one of `blocks` blocks. at_once: whole tiles begin without a division,
  // which takes registers.
  template <bool at_once = false, class Body>
  __device__ __forceinline__ void each_part(int block, int blocks, Body&& body) const {
    const int begins = begin(block);
    int left = count(block), first = 0, tile = block;
    if (!at_once || unit == 1) first = begins % steps, tile = begins / steps;
    while (left > 0) {
      const int end = min(steps, first + left);
      body(Part{tile, first, end});
      left -= end - first, first = 0, tile += apart(blocks);
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
