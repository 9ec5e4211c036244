// Level 6 on Hopper, first step: tensor cores that read shared memory. What changes from level 5:
//   - a warpgroup, four warps, multiplies 64 rows of A by 128 columns of B an instruction, 32 bytes of k at a
//     time, asynchronously and straight from shared memory: no operand passes through registers, which hold
//     sums alone;
//   - the tensor memory accelerator brings tiles in rows of 128 bytes, permuted so that the tensor cores meet
//     no bank conflicts, from any layout and with zeros beyond the edges: nothing is packed.
//
// Block tile 128 x 128, two warpgroups of 64 x 128. One thread asks for the copies of a stage as soon as the
// block has done with what it held; the products of one stage are under way while it does. Three stages of
// 32 KB leave room for two blocks on a multiprocessor, which fill each other's waits.
#include "cuda/gemm/parts/tile.cuh"
#include "cuda/gemm/parts/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 128, kStages = 3, kThreads = 256;

struct Shared {
  unsigned char a[kStages][kTile * 128];  // (kTile, kK)
  unsigned char b[kStages][kTile * 128];
  Barrier full[kStages];
};

template <class T>
struct Arguments {
  Gemm<T> gemm;
  unsigned tiles_n;
  int steps;
  int batch_a, batch_b;  // 0 where the batch shares the operand
};

// A thread's 64 sums: of two rows, pairs of columns.
template <class E, class T>
__device__ __forceinline__ void store_sums(const Gemm<T>& g, const Accumulator<E> (&sum)[kTile / 2],
                                           int64_t row, int64_t column) {
  FASTGEMM_UNROLL
  for (int i = 0; i < kTile / 2; ++i) {
    const Position p = WgmmaLayout<E>::c(int(threadIdx.x) % 128, i);
    if (row + p.row < g.m && column + p.column < g.n) g.result.store(row + p.row, column + p.column, sum[i]);
  }
}

template <class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, 2)
    gemm_wgmma_kernel(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
                      const __grid_constant__ Arguments<T> arguments) {
#if FASTGEMM_SM90A
  using E = TensorCoreElement<T>;
  using A = OperandTile<E, a_major, kTile>;
  using B = OperandTile<E, b_major, kTile>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  const int row = int(blockIdx.x / arguments.tiles_n) * kTile,
            column = int(blockIdx.x % arguments.tiles_n) * kTile;
  const auto load = [&](int step) {
    const int stage = step % kStages, batch = int(blockIdx.z);
    arrive_expecting(&shared->full[stage], A::kBytes + B::kBytes);
    A::load(shared->a[stage], &map_a, &shared->full[stage], row, step * A::kK, batch * arguments.batch_a);
    B::load(shared->b[stage], &map_b, &shared->full[stage], column, step * B::kK, batch * arguments.batch_b);
  };
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) init_barrier(&shared->full[i], 1);
    fence_barrier_init();
    for (int step = 0; step < min(kStages, arguments.steps); ++step) load(step);
  }
  __syncthreads();

  const int warpgroup = warp_index() / 4;
  Accumulator<E> sum[kTile / 2];  // (64, kTile) of the warpgroup
  for (int step = 0; step < arguments.steps; ++step) {
    const int stage = step % kStages;
    wait_phase(&shared->full[stage], uint32_t(step / kStages % 2));
    wgmma_fence(sum);
    multiply_tiles<E, A, B, a_major, b_major>(sum, A::descriptor(shared->a[stage], 64 * warpgroup),
                                              B::descriptor(shared->b[stage]), step > 0);
    wgmma_commit();
    wgmma_wait<1>();  // the products of the stage before are done,
    __syncthreads();  // those of both warpgroups
    const int next = step - 1 + kStages;
    if (threadIdx.x == 0 && step > 0 && next < arguments.steps) load(next);
  }
  wgmma_wait<0>(sum);
  const Gemm<T> g = arguments.gemm.at_batch(blockIdx.z);
  store_sums<E>(g, sum, row + 64 * warpgroup, column);
#endif
}

template <class T>
void launch_tiles(const Gemm<T>& g, int batch, Context& context) {
  RowCopies copies;
  const BoxOperands<T> operands(g, batch, copies, context);
  copies.launch({}, context);
  const TileGrid tiles = tile_grid(g.m, g.n, kTile, kTile, batch);
  const Arguments<T> arguments{g, tiles.tiles_n, int(ceil_div(g.k, 128 / int(sizeof(T)))),
                               operands.a.batch_stride != 0, operands.b.batch_stride != 0};
  const TensorMap a = operands.a.map(kTile), b = operands.b.map(kTile);
  operands.with_majors([&]<Major a_major, Major b_major>() {
    launch<gemm_wgmma_kernel<T, a_major, b_major>>("wgmma", {tiles.grid, dim3(kThreads), sizeof(Shared)},
                                                   context)(a, b, arguments);
  });
}

}  // namespace

void gemm_wgmma(const GemmProblem& problem, Context& context) {
  run_gemm<float, Half, BFloat16, int8_t>(problem, context,
                                          [&](const auto& g, int batch) { launch_tiles(g, batch, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
