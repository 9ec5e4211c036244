// The kernel of packed_tiles.cu and its launcher. Each packed_tiles_<code>.cu compiles them for one format of
// codes, so that the files compile at the same time.
#pragma once

#include "cuda/gemm/packed/problem.cuh"
#include "cuda/gemm/packed/tiles_source.cuh"
#include "cuda/gemm/parts/specialized.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The block tile is (128, N) of C^T: rows of the weight, and rows of x.
// Boxes of c go through the ring, too: two for each consumer warp.
template <int N, int SOURCE_BYTES>
struct PackedShape : RoomShape<N, std::max(SOURCE_BYTES, 2 * 8 * kBoxBytes)> {
  static constexpr int kHeldBoxes = N == 128 ? 4 : 1;
};

// Multiplies a thread's sums of a finished tile by the scales of whole rows, and adds the bias of each row.
template <class Out, class T, int R>
__device__ __forceinline__ void finish_rows(float (&sum)[R], const TileWeight& w, int n, int row) {
  const float global = w.weight.global ? *w.weight.global : 1.0f;
  float by[2], bias[2];
  FASTGEMM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int at = min(row + 8 * i, n - 1);
    by[i] = w.scales.by_rows ? static_cast<const float*>(w.weight.scales)[at] * global : global;
    bias[i] = w.bias ? float(widen(static_cast<const Out*>(w.bias)[at])) : 0.0f;
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) sum[i] = sum[i] * by[i % 4 / 2] + bias[i % 4 / 2];
}

template <class T, Code code, int N>
using PackedTileShape = PackedShape<N, TileSource<T, code, N>::kStageBytes>;

template <class T, Code code, int N>
__global__ void __launch_bounds__(PackedTileShape<T, code, N>::kThreads, 1)
    gemm_packed_tiles_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments<T> g,
                             const __grid_constant__ TileWeight weight) {
#if FASTGEMM_SM90A
  using S = PackedTileShape<T, code, N>;
  using Source = TileSource<T, code, N>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  if (threadIdx.x == S::kConsumerThreads) prefetch_map(&maps.y), prefetch_map(&maps.out);
  shared->init();
  __syncthreads();
  launch_dependents();
  const int warp = warp_index();
  // It is made where it is used. If it were made once, before the branch below, it would spill uniform
  // registers.
  const auto parts = [&] {
    return PersistentSchedule<S, T>{g, {g.schedule.work, int(blockIdx.x), int(gridDim.x)}};
  };
  const auto with_result = [&](auto&& body) {
    // With 256 columns no registers are left for float32 results.
    if constexpr (N == 128)
      if (g.out_bytes == 4) return body.template operator()<float>();
    body.template operator()<T>();
  };
  if (warp < S::kConsumerWarps) {
    claim_registers<232>();
    grid_dependency_wait();
    const auto schedule = parts();
    with_result([&]<class Out>() {
      const auto consumer = [&] {
        return WgmmaConsumer<S::kStages, S::kStageBytes, typename Source::Products>(
            shared->ring, shared->stage[0], warp, weight);
      };
      const auto adjust = [&](auto& sum, const Part& part) -> auto& {
        const int row = schedule.place(part).row + 16 * warp + fresh_lane() / 4;
        if (weight.scales.by_rows || weight.weight.global || weight.bias)
          finish_rows<Out, T>(sum, weight, g.rows.n, row);
        return sum;
      };
      consume<Source, Out, true>(*shared, consumer, maps, schedule, warp, adjust);
    });
    return;
  }
  release_registers<40>();
  grid_dependency_wait();
  if (warp == S::kConsumerWarps) {
    const auto producer = [&] {
      return typename Source::template Producer<S::kStages, S::kStageBytes>(shared->stage[0], shared->ring,
                                                                            maps.y, weight);
    };
    return produce<true>(producer, maps, parts());
  }
  if (g.rows.data == nullptr) return;
  const auto schedule = parts();
  with_result([&]<class Out>() { store_boxes<Out, true>(*shared, schedule, warp - S::kConsumerWarps - 1); });
#endif
}

template <class T, Code code, int N>
void launch_packed_tiles(const Gemm<T>& g, const BoxOperand<T>& x, const TileWeight& weight,
                         RowCopies& copies, const Sharing& sharing, Context& context) {
  using S = PackedTileShape<T, code, N>;
  const Result<T>& r = g.result;
  const Boxes result{r.out, r.row_stride, r.batch_stride};
  const bool in_boxes = result.writable(g, 1);
  Arguments<T> arguments{r.alpha,
                         r.beta,
                         r.out_bytes(),
                         r.beta != 0,
                         {in_boxes ? nullptr : r.out, r.row_stride, r.batch_stride, int(g.m), int(g.n)}};
  auto& schedule = arguments.schedule;
  schedule.tiles_m = int(ceil_div(g.n, S::kM)), schedule.tiles_n = int(ceil_div(g.m, S::kN));
  schedule.stages = plans::specialized_stages(g.k, int(sizeof(T)));
  const int64_t tiles = int64_t(schedule.tiles_m) * schedule.tiles_n;
  const int chunks = schedule.stages / kChunk;
  const int blocks = plans::specialized_blocks(tiles, chunks, multiprocessors());
  const auto flags = share(schedule, tiles, chunks, blocks, sharing, S::kM * S::kN, S::kConsumers, context);
  Maps maps{};
  maps.y = x.map(S::kN);
  if (in_boxes) maps.out = result.map(g, 1, true);
  if (arguments.adds) maps.c = boxes_of_c(g, 1, copies, context).map(g, 1, true);
  copies.launch(flags, context);
  launch<gemm_packed_tiles_kernel<T, code, N>>(
      "packed_tiles", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true}, context)(
      maps, arguments, weight);
}

// The instances for one format of codes.
template <Code code>
struct PackedTiles {
  static void run(const GemmProblem&, Context&);
};

template <class T>
TileWeight tile_weight(const GemmProblem& p, const void* bias) {
  const PackedWeight& w = p.packed;
  TileWeight t{w,
               UnitScales(w, p.k),
               static_cast<const unsigned char*>(p.b.data),
               packed::unit_bytes(w, p.k),
               int(packed::blocks(p.n, packed::kRows)),
               int(packed::blocks(p.k, packed::kColumns))};
  t.halves = !t.scales.by_rows && w.group_k < packed::kColumns;
  t.scale_bytes = packed::unit_scale_bytes(w, p.k) / (t.halves ? 2 : 1);
  t.zeros_at = (t.scale_bytes + 127) / 128 * 128;
  t.zero_bytes = packed::unit_zero_bytes(w, p.k) / (t.halves ? 2 : 1);
  const bool of_t = w.scale == (std::is_same_v<T, Half> ? ScaleType::f16 : ScaleType::bf16);
  t.direct = of_t && !t.scales.shared;
  t.bias = bias;
  return t;
}

template <Code code>
void PackedTiles<code>::run(const GemmProblem& given, Context& context) {
  GemmProblem p = given;
  const void* bias = nullptr;
  if (p.beta == 1 && p.c.row_stride == 0 && p.c.col_stride == 1) bias = p.c.data, p.beta = 0, p.c = {};
  run_gemm<Half, BFloat16>(p, context, [&]<class T>(const Gemm<T>& g, int /* batch: 1 */) {
    RowCopies copies;
    const BoxOperand<T> x = box_operand(side_a(g, 1), 1, std::min({g.m, g.n, g.k}), false, copies, context);
    const TileWeight weight = tile_weight<T>(p, bias);
    const Sharing sharing = p.invariant ? plans::kUnshared : plans::kLastWave;
    const int columns = plans::packed_columns(g.m, g.n, multiprocessors());
    columns == 128 || g.result.wide
        ? launch_packed_tiles<T, code, 128>(g, x, weight, copies, sharing, context)
        : launch_packed_tiles<T, code, 256>(g, x, weight, copies, sharing, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
