//   make sim KERNEL=mma_ldmatrix ARGS='--dtype bf16'
//
// Level 6 since sm_80, second step: a known fragment layout. wmma does not say which elements of a matrix a
// lane holds; mma.sync does (MmaLayout in device/fragment.cuh). What changes from wmma:
//   - ldmatrix loads a fragment: one instruction loads four matrices of 8 x 8 elements, and each lane gives
//     the address of one row of 16 bytes. So the 16-byte units of a tile may have any order in shared memory;
//   - the tiles are swizzled instead of padded. In a line of 128 bytes, the number of the line permutes the 8
//     units, so that the units of a column are in all 32 banks:
//
//       line 0 | 0 1 2 3 4 5 6 7 |     cp.async writes the units of a line, ldmatrix reads 8 lines
//       line 1 | 1 0 3 2 5 4 7 6 |     of one unit: neither has bank conflicts, and no space is lost
//       line 2 | 2 3 0 1 6 7 4 5 |
//
// Block tile, warp tiles and stages are those of wmma. The loop is as simple as in cp_async: it loads
// fragments, then multiplies them. Level 6 runs mma_sync (fast/). It distributes copies and loads between the
// products (parts/line_tile.cuh), has wider tiles, shares the last ones, and reads operands in any layout;
// here an operand that does not lie along k is copied first. The simple loop is also slower than wmma, whose
// row uses the main loop of mma_sync.
#include "cuda/device/async_copy.cuh"
#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/swizzle.cuh"
#include "cuda/gemm/parts/operand_rows.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 128, kK = 64, kStages = 3;               // block tile 128 x 128, 64 of k per stage
constexpr int kWarpTile = 64, kWarpsM = 2, kThreads = 4 * 32;  // four warps of 64 x 64

struct alignas(128) Shared {
  unsigned char a[kStages][kTile * 128];  // (128, 128 bytes): m, k
  unsigned char b[kStages][kTile * 128];  // (128, 128 bytes): n, k
};

template <class T>
struct Arguments {
  Gemm<T> gemm;
  RowsOperands<T> operands;
  int tiles_m, tiles_n, steps;  // stages of a tile
};

// The block copies stage `step` of the lines from `first` on, with zeros outside the operand.
template <class T>
__device__ __forceinline__ void copy_tile(unsigned char* tile, const RowsOperand<T>& from, int batch,
                                          int first, int step) {
  const int unit = int(threadIdx.x) % 8, k = step * kK + unit * 8;
  const int valid = max(0, min(from.k - k, 8)) * int(sizeof(T));
  const T* const data = from.data + batch * from.batch_stride;
  FASTGEMM_UNROLL
  for (int i = 0; i < kTile; i += kThreads / 8) {
    const int line = int(threadIdx.x) / 8 + i;
    const bool there = valid > 0 && first + line < from.side;
    copy_async<16>(tile + swizzled<Swizzle::bytes128>(uint32_t(line * 128 + unit * 16)),
                   there ? data + (first + line) * from.row_stride + k : data, there ? valid : 0);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_mma_ldmatrix_kernel(const __grid_constant__ Arguments<T> g) {
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  const TilePlace<8> place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row0 = place.row * kTile, column0 = place.column * kTile;
  const auto copy_stage = [&](int step) {
    if (step < g.steps) {
      copy_tile(shared->a[step % kStages], g.operands.a, place.batch, row0, step);
      copy_tile(shared->b[step % kStages], g.operands.b, place.batch, column0, step);
    }
    commit_async_copies();  // even if it is empty, so that each step has a group
  };

  const int warp = warp_index(), lane = int(threadIdx.x) % 32;
  const int row = warp % kWarpsM * kWarpTile, column = warp / kWarpsM * kWarpTile;  // of the warp in the tile
  // The addresses of a lane in 16 lines and 32 bytes of k. The four matrices are in the order of the
  // registers: for A down the lines first; for B along k first, where they are two fragments of 8 columns.
  const uint32_t lane_a = swizzled<Swizzle::bytes128>(uint32_t((row + lane % 16) * 128 + lane / 16 * 16));
  const uint32_t lane_b =
      swizzled<Swizzle::bytes128>(uint32_t((column + lane % 8 + lane / 16 * 8) * 128 + lane / 8 % 2 * 16));
  float sum[4][8][4] = {};  // (64, 64) of the warp in tiles of (16, 8)

  for (int i = 0; i < kStages - 1; ++i) copy_stage(i);
  FASTGEMM_NO_UNROLL
  for (int step = 0; step < g.steps; ++step) {
    wait_async_copies<kStages - 2>();
    __syncthreads();  // all threads have this stage, and have read the one before
    copy_stage(step + kStages - 1);
    FASTGEMM_UNROLL
    for (uint32_t k = 0; k < 128; k += 32) {  // bytes: 16 elements per instruction
      uint32_t a[4][4], b[4][4];
      FASTGEMM_UNROLL
      for (int i = 0; i < 4; ++i) {
        load_matrices<4>(a[i], shared->a[step % kStages] + (lane_a ^ k) + i * 16 * 128);
        load_matrices<4>(b[i], shared->b[step % kStages] + (lane_b ^ k) + i * 16 * 128);
      }
      FASTGEMM_UNROLL
      for (int i = 0; i < 4; ++i) {
        FASTGEMM_UNROLL
        for (int j = 0; j < 8; ++j) mma<T>(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }
  }
  wait_async_copies<0>();

  const Gemm<T> c = g.gemm.at_batch(place.batch);
  FASTGEMM_UNROLL
  for (int i = 0; i < 4 * 8 * 4; ++i) {
    const Position p = MmaLayout<T>::c(lane, i % 4);
    const int64_t m = row0 + row + i / 32 * 16 + p.row, n = column0 + column + i / 4 % 8 * 8 + p.column;
    if (m < c.m && n < c.n) c.result.store(m, n, sum[i / 32][i / 4 % 8][i % 4]);
  }
}

}  // namespace

void gemm_mma_ldmatrix(const GemmProblem& problem, Context& context) {
  run_gemm<Half, BFloat16>(problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
    const RowsOperands<T> operands = rows_operands<OperandLayout::along_k>(g, batch, context);
    const dim3 blocks(tile_grid(g.m, g.n, kTile, kTile, batch).grid.x * unsigned(batch));
    launch<gemm_mma_ldmatrix_kernel<T>>("mma_ldmatrix", {blocks, dim3(kThreads), sizeof(Shared)}, context)(
        {g, operands, int(ceil_div(g.m, kTile)), int(ceil_div(g.n, kTile)), int(ceil_div(g.k, kK))});
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
