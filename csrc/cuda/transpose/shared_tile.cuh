// The kernel of levels 2 and 3: a tile of 32 x 32 elements goes through shared memory, so that reads and
// writes are coalesced. The levels differ in the length of the tile's rows.
#pragma once

#include "cuda/transpose/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kSharedTile = 32, kSharedTileRows = 8;  // block (32, 8): each thread moves 4 elements

template <int Size, int Pitch>
__global__ void __launch_bounds__(kSharedTile* kSharedTileRows)
    transpose_shared_kernel(Transpose batch, Tiles tiles) {
  using T = Element<Size>;
  FASTGEMM_SHARED T staged[kSharedTile][Pitch];  // (32, 32) of src
  const Tiles::Place tile = tiles.along_rows(blockIdx.x);
  const Transpose t = batch.at_matrix(tile.matrix);
  const int64_t row = int64_t(tile.row) * kSharedTile, col = int64_t(tile.col) * kSharedTile;
  const int x = int(threadIdx.x) % kSharedTile, y = int(threadIdx.x) / kSharedTile;

  FASTGEMM_UNROLL
  for (int i = y; i < kSharedTile; i += kSharedTileRows)
    if (row + i < t.rows && col + x < t.cols) staged[i][x] = t.from<T>(row + i, col + x);
  __syncthreads();
  FASTGEMM_UNROLL
  for (int j = y; j < kSharedTile; j += kSharedTileRows)
    if (row + x < t.rows && col + j < t.cols) t.to<T>(row + x, col + j) = staged[x][j];
}

// Pads each row by PaddingWords words of 4 bytes, or by as many elements if these are wider.
template <int PaddingWords>
void launch_shared(const char* name, const TransposeProblem& p, Context& context) {
  run_transpose(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    launch_tiles(all, batch, TileSize{kSharedTile, kSharedTile},
                 [&](const Transpose& t, const Tiles& tiles, unsigned count) {
                   constexpr int kPitch = kSharedTile + PaddingWords * std::max(1, 4 / Size);
                   launch<transpose_shared_kernel<Size, kPitch>>(
                       name, {dim3(count), dim3(kSharedTile * kSharedTileRows)}, context)(t, tiles);
                 });
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
