// The fourth pass on GPUs without wgmma: `mma_sync` multiplies the residues of one modulus after another into
// int32, and this kernel reduces the sums to bytes, in the order in which join.cuh reads them.
#pragma once

#include "cuda/gemm/parts/residues/multiply.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

struct ReduceArguments {
  Selection selection;
  const int32_t* products;  // (m, n), contiguous
  unsigned char* sums;
  int64_t m, n;
  int tiles_n, moduli, index;  // index: which modulus
  Reduction reduction;
};

__global__ void __launch_bounds__(kSumThreads) reduce_kernel(const __grid_constant__ ReduceArguments g) {
  const int tile = int(blockIdx.x) / kParts, part = int(blockIdx.x) % kParts, thread = int(threadIdx.x);
  const int tile_row = tile / g.tiles_n, tile_column = tile % g.tiles_n;
  if (!g.selection.takes(tile_row, tile_column)) return;
  const int64_t row0 = int64_t{tile_row} * kTileM + thread / 128 * 64,
                column0 = int64_t{tile_column} * kTileN;
  uint32_t sum[16];
  FASTGEMM_UNROLL
  for (int i = 0; i < 16; ++i) {
    const Position at = WgmmaLayout<int8_t>::c(thread % 128, 16 * part + i);
    const int64_t row = row0 + at.row, column = column0 + at.column;
    sum[i] = row < g.m && column < g.n ? uint32_t(g.products[row * g.n + column]) : 0;
  }
  const int64_t at = (int64_t{tile} * g.moduli + g.index) * kParts + part;
  store_reduced(g.sums + (at * kSumThreads + thread) * 16, sum, g.reduction);
}

}  // namespace fastgemm::FASTGEMM_TARGET::residues
