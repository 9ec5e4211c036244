//   make sim KERNEL=producer_warp
//
// Level 5 on Hopper: warps with roles. What changes from cp_async: one warp, the producer, only asks the
// tensor memory accelerator for boxes of the panels, a ring of stages ahead. The other eight, the consumers,
// only multiply: they compute no addresses of copies and never wait for each other. Each stage has two
// barriers in shared memory. `full` counts the bytes that have arrived, `empty` the consumer warps that have
// read the stage.
//
//   producer:   wait empty[s]  ->  expect bytes, two boxes into stage s  ->  s + 1
//   consumers:  wait full[s]   ->  multiply stage s  ->  arrive at empty[s]  ->  s + 1
//
// The companion producer_warp_wide differs only in the thread tile: for 8 x 16 sums a thread loads 24 values
// for 128 multiply-adds, where 8 x 8 sums need 16 values for 64. Loads take issue slots that multiply-adds
// need. But 128 sums leave no registers for a second block, and without it this step loses 7 %
// (docs/ladder.md): nothing multiplies while a warp waits for its fragments.
//
// Level 5 runs warp_specialized (fast/). It adds persistent blocks that share the last tiles evenly,
// setmaxnreg, the other types, and fragments that are loaded across stages.
#include "cuda/gemm/parts/panel_map.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/schedules/tile_order.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"
#include "cuda/gemm/parts/warp_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <int TN>
struct Shape {
  using Tile = WarpTile<float, 8, TN, false>;
  static constexpr int kWarpsM = 2, kWarpsN = 4, kConsumers = kWarpsM * kWarpsN;
  static constexpr int kThreads = 32 * kConsumers + 32;
  static constexpr int kM = kWarpsM * Tile::kM, kN = kWarpsN * Tile::kN;  // 128 x 128, or 128 x 256
  static constexpr int kK = 16, kStages = TN == 8 ? 4 : 7, kBlocksAnSM = TN == 8 ? 2 : 1;

  struct Stage {
    float a[kK * kM];  // (16, kM): k, m
    float b[kK * kN];  // (16, kN): k, n
  };
  struct Shared {
    Stage stage[kStages];
    float slabs[kConsumers][Tile::kSlabWords];
    RingBarriers<kStages> barriers;
  };
  // A multiprocessor has 228 KB of shared memory, of which each block takes 1 KB beside its own. The stages
  // fill it.
  static_assert(kBlocksAnSM * (sizeof(Shared) + 1024) <= 228 << 10);
};

struct Arguments {
  Output<float> out;
  int64_t m, n;
  int tiles_m, tiles_n, steps;  // stages of a tile
  int batch_a, batch_b;         // 0 where the batch shares the operand
  float zero;                   // see WarpTile::clear()
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksAnSM)
    gemm_producer_warp_kernel(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                              const __grid_constant__ Arguments g) {
#if FASTGEMM_SM90A
  using Tile = typename S::Tile;
  using Stage = typename S::Stage;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  auto& [full, empty] = shared->barriers;
  if (threadIdx.x == 0) {
    shared->barriers.init(1, S::kConsumers);
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_index();
  const TilePlace<8> place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row0 = place.row * S::kM, column0 = place.column * S::kN;

  if (warp == S::kConsumers) {  // the producer
    if (!elect_one()) return;
    RingPosition<S::kStages> at{0, 1};  // in phase 1 a new barrier does not wait: all stages are empty
    for (int step = 0; step < g.steps; ++step, at.advance()) {
      wait_phase(&empty[at.stage], at.phase);
      arrive_expecting(&full[at.stage], sizeof(Stage));
      load_box(shared->stage[at.stage].a, &a, &full[at.stage], row0, step * S::kK, place.batch * g.batch_a);
      load_box(shared->stage[at.stage].b, &b, &full[at.stage], column0, step * S::kK,
               place.batch * g.batch_b);
    }
    return;
  }

  const int row = warp % S::kWarpsM * Tile::kM, column = warp / S::kWarpsM * Tile::kN;  // of the warp
  Tile tile;
  tile.clear(g.zero);
  RingPosition<S::kStages> at{0, 0};
  FASTGEMM_NO_UNROLL
  for (int step = 0; step < g.steps; ++step, at.advance()) {
    wait_phase(&full[at.stage], at.phase);
    const float* const rows = shared->stage[at.stage].a + row + Tile::row(0);
    const float* const columns = shared->stage[at.stage].b + column + Tile::column(0);
    FASTGEMM_UNROLL
    for (int k = 0; k < S::kK; ++k) {
      typename Tile::Fragment fragment;
      Tile::load(fragment, rows + k * S::kM, columns + k * S::kN);
      tile.multiply(fragment);
    }
    __syncwarp();  // all lanes have read the stage
    if (threadIdx.x % 32 == 0) arrive(&empty[at.stage]);
  }
  tile.store(g.out.at_batch(place.batch), shared->slabs[warp], row0 + row, column0 + column, g.m, g.n);
#endif
}

template <class S>
void launch_producer_warp(const char* name, const GemmProblem& problem, Context& context) {
  run_gemm<float>(problem, context, [&](const Gemm<float>& p, int batch) {
    const Panels<float> panels = make_panels(p, batch, {}, context);
    const int tiles_m = int(ceil_div(p.m, S::kM)), tiles_n = int(ceil_div(p.n, S::kN));
    const dim3 blocks(tile_grid(p.m, p.n, S::kM, S::kN, batch).grid.x * unsigned(batch));
    launch<gemm_producer_warp_kernel<S>>(name, {blocks, dim3(S::kThreads), sizeof(typename S::Shared)},
                                         context)(
        map_of(panels.a, batch, S::kM, S::kK), map_of(panels.b, batch, S::kN, S::kK),
        {output_of(p), p.m, p.n, tiles_m, tiles_n, int(ceil_div(p.k, S::kK)), panels.a.batch_stride != 0,
         panels.b.batch_stride != 0, 0});
  });
}

}  // namespace

void gemm_producer_warp(const GemmProblem& p, Context& c) {
  launch_producer_warp<Shape<8>>("producer_warp", p, c);
}
void gemm_producer_warp_wide(const GemmProblem& p, Context& c) {
  launch_producer_warp<Shape<16>>("producer_warp_wide", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
