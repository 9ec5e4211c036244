// Level 1: parallelism. One thread moves one element. A warp reads 32 neighbours in a row of src and writes
// them to 32 rows of dst. In fp32 a read request has 4 sectors of 32 bytes. A write request has 32 sectors,
// and writes 4 bytes of each.
//
// The companion naive_strided_read exchanges the two: a warp reads from 32 rows of src and writes to one row
// of dst. The requests have the same numbers of sectors. But L1 keeps the sectors of a read until the block's
// other warps need them, whereas a write leaves L1 at once. So strided reads are cheaper.
#include "cuda/transpose/levels.h"
#include "cuda/transpose/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kLanes = 32, kWarps = 8;

template <int Size, bool coalesced_read>
__global__ void __launch_bounds__(kLanes* kWarps) transpose_naive_kernel(Transpose batch, Tiles tiles) {
  const Tiles::Place tile = tiles.along_rows(blockIdx.x);
  const Transpose t = batch.at_matrix(tile.matrix);
  // (8, 32) elements of src, or (32, 8).
  const int lane = int(threadIdx.x) % kLanes, warp = int(threadIdx.x) / kLanes;
  const int64_t row = coalesced_read ? int64_t(tile.row) * kWarps + warp : int64_t(tile.row) * kLanes + lane;
  const int64_t col = coalesced_read ? int64_t(tile.col) * kLanes + lane : int64_t(tile.col) * kWarps + warp;
  if (row < t.rows && col < t.cols) t.to<Element<Size>>(row, col) = t.from<Element<Size>>(row, col);
}

template <bool coalesced_read>
void launch_naive(const char* name, const TransposeProblem& p, Context& context) {
  run_transpose(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    launch_tiles(all, batch, coalesced_read ? TileSize{kWarps, kLanes} : TileSize{kLanes, kWarps},
                 [&](const Transpose& t, const Tiles& tiles, unsigned count) {
                   launch<transpose_naive_kernel<Size, coalesced_read>>(
                       name, {dim3(count), dim3(kLanes * kWarps)}, context)(t, tiles);
                 });
  });
}

void transpose_naive(const TransposeProblem& p, Context& c) { launch_naive<true>("naive", p, c); }
void transpose_naive_strided_read(const TransposeProblem& p, Context& c) {
  launch_naive<false>("naive_strided_read", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
