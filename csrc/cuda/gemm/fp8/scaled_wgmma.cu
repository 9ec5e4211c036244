// Level 6 on Hopper for 8-bit floating-point numbers with scales. What changes from wgmma_specialized:
//   - sums are promoted: the tensor cores sum 128 values of k at a time. These sums are multiplied by the
//     scales of their blocks, if there are any, and added to float32 sums in registers (fp8/promoted.cuh);
//   - a tile has 192 or 256 rows for three or four warpgroups. One of them adds while the others multiply
//     (fp8/scaled_tile.h chooses the tile);
//   - scales of whole rows and columns multiply the sums of a finished tile (fp8/stage_scales.cuh);
//   - wgmma takes these numbers only with k along rows. Any other operand is transposed first, by fastgemm's
//     transpose;
//   - tiles may be those of C^T: if C has few rows, the large operand provides the rows of wgmma.
#include <stdexcept>

#include "cuda/gemm/fp8/scaled_shape.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class E>
inline constexpr bool kIsPlain = std::is_same_v<E, Plain>;

// What a consumer warp does: multiplies, and stores the tiles that its block finishes.
template <class S, class Source, class Out, bool turned>
__device__ __forceinline__ void multiply_tiles(typename S::Shared& shared, const Maps& maps,
                                               const PersistentSchedule<S, Out16>& schedule,
                                               const OperandScales& scales, int warp) {
  const auto place_of = [&](int tile) {
    return place_of_box<turned>(schedule.stored_at(tile), warp, 0, int(sizeof(Out)));
  };
  const BoxStore store(shared.staging[warp], shared.boxes[warp],
                       !S::kOnlyBoxes && schedule.g.rows.data ? nullptr : &maps.out);
  HeldBoxes<Box<Out, InOrder, turned>, S::kSums, decltype(place_of), BoxStore, 0> boxes(store, place_of);
  typename Source::template Consumer<S> consumer(shared, warp);
  const SharedParts parts{shared.tail.share, schedule.g.schedule};
  if constexpr (S::kScaling == Scaling::sums) {
    LineScalesCopy<S::kN> copy(shared.tail.scales);
    consume_promoted<S>(
        consumer, parts,
        [&](const Part& part) {
          const auto place = schedule.place(part);
          copy.begin(scales.x, scales.y, place.row + 64 * (warp_index() / 4), place.column);
        },
        [&](auto& sum, const Part& part) {
          const bool finishes = schedule.finishes(sum, part, warp_index() / 4);
          copy.template multiply<turned>(sum);
          if (finishes) boxes.take(sum, part.tile, [](float x) { return x; });
        });
  } else {
    consume_promoted<S>(
        consumer, parts, [](const Part&) {},
        [&](auto& sum, const Part& part) {
          if (schedule.finishes(sum, part, warp / 4)) boxes.take(sum, part.tile, [](float x) { return x; });
        });
  }
  wait_stores_read<0>();
}

template <class S, class E, bool turned>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_scaled_wgmma_kernel(const __grid_constant__ Maps maps, const __grid_constant__ Arguments<Out16> g,
                             const __grid_constant__ OperandScales scales) {
#if FASTGEMM_SM90A
  using Source = PromotedSource<E, S::kM, S::kN, S::kScaling, S::kGroup>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  if (threadIdx.x == S::kConsumerThreads)
    prefetch_map(&maps.x), prefetch_map(&maps.y), prefetch_map(&maps.out);
  shared->init(Source::kArrivals);
  if (threadIdx.x == 0) shared->tail.share.init(g.schedule.work);
  __syncthreads();
  launch_dependents();
  const int warp = warp_index();
  const PersistentSchedule<S, Out16> schedule{g, {g.schedule.work, int(blockIdx.x), int(gridDim.x)}};
  const auto with_result = [&](auto&& body) {
    if (g.out_bytes == 4) return body.template operator()<float>();
    body.template operator()<Out16>();
  };
  if (warp < S::kConsumerWarps) {
    claim_registers<S::kConsumerRegisters>();
    grid_dependency_wait();
    with_result(
        [&]<class Out>() { multiply_tiles<S, Source, Out, turned>(*shared, maps, schedule, scales, warp); });
    return;
  }
  release_registers<S::kProducerRegisters>();
  grid_dependency_wait();
  if (warp == S::kConsumerWarps) {
    const auto producer = [&] { return typename Source::template Producer<S>(*shared, maps, scales); };
    return produce<turned>(producer, maps, schedule);
  }
  if (g.rows.data == nullptr) return;
  if constexpr (!S::kOnlyBoxes)
    with_result(
        [&]<class Out>() { store_boxes<Out, turned>(*shared, schedule, warp - S::kConsumerWarps - 1); });
#endif
}

// The product. The stride of a single row does not matter, so it is set to one that the TMA takes.
Gemm<Out16> with_row_stride(const GemmProblem& p) {
  Gemm<Out16> g = gemm_of<Out16>(p);
  if (g.m == 1) g.result.row_stride = ceil_div(g.n, 16) * 16;
  return g;
}
bool stores_boxes(const GemmProblem& p) {
  const Gemm<Out16> g = with_row_stride(p);
  return Boxes{g.result.out, g.result.row_stride, 0}.writable(g, 1);
}

// The operands of a product, as X and Y.
struct ScaledOperands {
  Side<int8_t> x, y;
  BlockScales scales_x, scales_y;  // of lines and k

  ScaledOperands(const GemmProblem& p, bool turned)
      : x{static_cast<const int8_t*>(p.a.data), p.m, p.k, p.a.row_stride, p.a.col_stride, 0},
        y{static_cast<const int8_t*>(p.b.data), p.n, p.k, p.b.col_stride, p.b.row_stride, 0},
        scales_x(p.scales_a),
        scales_y(p.scales_b.transposed()) {
    if (turned) std::swap(x, y), std::swap(scales_x, scales_y);
  }
};

template <class E, class S, bool turned>
void launch_tiles(const GemmProblem& p, Context& context) {
  const ScaledOperands o(p, turned);
  const OperandScales scales =
      operand_scales<S>({o.scales_x, o.x.side}, {o.scales_y, o.y.side}, p.k, context);
  RowCopies copies;
  const int64_t extents = std::min({p.m, p.n, p.k});
  const BoxOperand<int8_t> x = box_operand(o.x, 1, extents, false, copies, context);
  const BoxOperand<int8_t> y = box_operand(o.y, 1, extents, false, copies, context);
  const Gemm<Out16> g = with_row_stride(p);
  const Boxes result{g.result.out, g.result.row_stride, 0};
  const bool in_boxes = result.writable(g, 1);
  if (S::kOnlyBoxes && !in_boxes) throw std::logic_error("fastgemm: no thread stores rows of this tile");
  Arguments<Out16> arguments{1, 0, g.result.out_bytes(), false};
  arguments.rows = {in_boxes ? nullptr : g.result.out, g.result.row_stride, 0, int(g.m), int(g.n)};
  auto& schedule = arguments.schedule;
  schedule.tiles_m = int(ceil_div(x.side, S::kM)), schedule.tiles_n = int(ceil_div(y.side, S::kN));
  schedule.stages = plans::specialized_stages(p.k, 1);
  const int64_t tiles = int64_t{schedule.tiles_m} * schedule.tiles_n;
  const int chunks = schedule.stages / kChunk;
  const int blocks = plans::count_blocks(tiles, chunks, multiprocessors());
  const auto flags =
      share(schedule, tiles, chunks, blocks, plans::kLastWave, S::kM * S::kN, S::kConsumers, context);
  Maps maps{};
  static_cast<BoxMaps&>(maps) = BoxMaps(x, S::kM, y, S::kN);
  maps.out = in_boxes ? result.map(g, 1, turned) : maps.y;
  copies.launch(flags, context);
  launch<gemm_scaled_wgmma_kernel<S, E, turned>>(
      "scaled_wgmma", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true}, context)(
      maps, arguments, scales);
}

template <class E, bool turned>
void launch_codes(const GemmProblem& p, const plans::ScaledTile& tile, Context& context) {
  const auto run = [&]<int M, int N, int WIDTH, Scaling scaling, int GROUP = 128>() {
    launch_tiles<E, ScaledShape<M, N, WIDTH, scaling, GROUP>, turned>(p, context);
  };
  const auto run_rows = [&]<Scaling scaling>() {
    if constexpr (kIsPlain<E> && scaling != Scaling::columns)
      if (tile.rows == 256 && tile.columns == 128) return run.template operator()<256, 128, 64, scaling>();
    if constexpr (kIsPlain<E> && turned)
      if (tile.rows == 256) return run.template operator()<256, 64, 64, scaling>();
    if constexpr (kIsPlain<E>)
      if (tile.columns == 64) return run.template operator()<192, 64, 64, scaling>();
    run.template operator()<192, 128, 128, scaling>();
  };
  if (plans::has_short_groups(p)) return run.template operator()<192, 64, 64, Scaling::columns, 32>();
  const Scaling scaling = plans::scaling_of(p, turned);
  if (scaling == Scaling::sums) return run_rows.template operator()<Scaling::sums>();
  if constexpr (kIsPlain<E>)
    if (scaling == Scaling::blocks) return run_rows.template operator()<Scaling::blocks>();
  run_rows.template operator()<Scaling::columns>();
}

template <class E>
void launch_pair(const GemmProblem& p, Context& context) {
  const plans::ScaledTiles tiles = plans::scaled_tiles(p, stores_boxes(p));
  const plans::ScaledTile tile = plans::plan_scaled(p.m, p.n, p.k, tiles, multiprocessors()).tile;
  if constexpr (kIsPlain<E>)
    if (tile.turned) return launch_codes<E, true>(p, tile, context);
  launch_codes<E, false>(p, tile, context);
}

}  // namespace

void gemm_scaled_wgmma(const GemmProblem& given, Context& context) {
  const GemmProblem p = by_rows(given);
  switch (p.type) {
    case DType::e4m3:
      return launch_pair<Plain>(p, context);
    case DType::e5m2:
      return launch_pair<Fp8Pair<E5M2, E5M2>>(p, context);
    case DType::e4m3e5m2:
      return launch_pair<Fp8Pair<E4M3, E5M2>>(p, context);
    default:
      return launch_pair<Fp8Pair<E5M2, E4M3>>(p, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
