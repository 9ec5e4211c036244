// Level 6 on Hopper at full speed. What changes from wgmma_setmaxnreg (ladder/):
//   - a finished tile is rounded and kept in registers, and is stored asynchronously between the first
//     products of the next tile (parts/stores/box_store.cuh);
//   - stream-K shares the tiles of the last wave evenly where that pays (parts/schedules/chunks.cuh);
//   - tf32 and int8 operands with m or n along rows are multiplied from registers
//     (parts/sources/fragments.cuh), which wgmma allows for its left operand: A, or B in C^T = B^T A^T. If
//     both operands are such, the smaller one is copied;
//   - with beta, boxes of c go through the ring like operands, which hides their latency;
//   - signed and unsigned bytes are both copied as int8, and multiplied by the instruction for the signs of A
//     and B;
//   - where rows of A, B or c do not begin at multiples of 16 bytes, one launch before copies them
//     (parts/sources/row_copies.cuh). Where rows of C do not, the three other warps of the producer's
//     warpgroup store the boxes.
//
// Separate kernels (Fusing<Shape>) apply the epilogue of a layer (bias, activation) to the sums in registers
// before they are stored.
//
// The position in the pipeline is kept in uniform registers: these are free, while ordinary registers are
// scarce. The compiler keeps it there only if no branch of the main loop depends on the length of a part.
// Hence work is counted in chunks of at least four stages. From 4096 on the tensor cores are busy nearly all
// the time, and power is the limit (docs/tensor_cores.md).
#include "cuda/gemm/fast/decode.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/parts/specialized.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class S, class T, Major a_major, Major b_major, bool transposed>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_wgmma_specialized_kernel(const __grid_constant__ MapsOf<S> maps,
                                  const __grid_constant__ Arguments<StorageElement<T>> g) {
#if FASTGEMM_SM90A
  using E = TensorCoreElement<T>;
  using Source = BoxSource<E, a_major, S::kM, Read::often, b_major, S::kN, Read::often>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  if (threadIdx.x == S::kConsumerThreads)
    prefetch_map(&maps.x), prefetch_map(&maps.y), prefetch_map(&maps.out);
  if constexpr (S::kMirrors)
    if (threadIdx.x == S::kConsumerThreads) prefetch_map(&maps.mirrored.turned);
  shared->init();
  __syncthreads();
  launch_dependents();
  const int warp = warp_index();
  const PersistentSchedule<S, StorageElement<T>> schedule{g,
                                                          {g.schedule.work, int(blockIdx.x), int(gridDim.x)}};
  const auto with_result = [&](auto&& body) {
    if constexpr (Result<T>::kMayBeWide && !S::kMirrors && kMayFinishWide<S>) {
      if (g.out_bytes == 4) return body.template operator()<float>();
    }
    body.template operator()<typename Result<T>::Stored>();
  };
  if (warp < S::kConsumerWarps) {
    claim_registers<232>();
    grid_dependency_wait();
    with_result([&]<class Out>() {
      const auto consumer = [&] {
        return typename Source::template Consumer<S>(shared->ring, shared->stage[0], warp);
      };
      consume<Source, Out, transposed>(*shared, consumer, maps, schedule, warp,
                                       [](auto& sum, const Part&) -> auto& { return sum; });
    });
    return;
  }
  release_registers<40>();
  grid_dependency_wait();
  if (warp == S::kConsumerWarps) {
    const auto producer = [&] {
      return typename Source::template Producer<S>(shared->stage[0], shared->ring, maps.x, maps.y);
    };
    return produce<transposed>(producer, maps, schedule);
  }
  if (S::kMirrors || g.rows.data == nullptr) return;
  with_result(
      [&]<class Out>() { store_boxes<Out, transposed>(*shared, schedule, warp - S::kConsumerWarps - 1); });
#endif
}

template <class T>
Boxes boxes_of_result(const Gemm<T>& g) {
  return {g.result.out, g.result.row_stride, g.result.batch_stride};
}

// Multiplies elements of T, which are copied as elements of Storage.
template <class S, class T, class Storage>
void launch_tiles(const Gemm<Storage>& g, const BoxOperands<Storage>& operands, int batch,
                  const Sharing& sharing, RowCopies& copies, Context& context,
                  const Epilogue& epilogue = {}) {
  const auto [a, b, transposed] = operands;
  const Result<Storage>& r = g.result;
  const Boxes result = boxes_of_result(g);
  const bool in_boxes = result.writable(g, batch);
  Arguments<Storage> arguments{
      r.alpha,
      r.beta,
      r.out_bytes(),
      r.beta != Accumulator<Storage>(0),
      {in_boxes ? nullptr : r.out, r.row_stride, r.batch_stride, int(g.m), int(g.n)}};
  if constexpr (kFuses<S>) arguments.epilogue = whole_pairs(epilogue, g, copies, context);
  auto& schedule = arguments.schedule;
  schedule.tiles_m = int(ceil_div(a.side, S::kM)), schedule.tiles_n = int(ceil_div(b.side, S::kN));
  schedule.stages = plans::specialized_stages(g.k, int(sizeof(T)));
  if constexpr (S::kLower) {
    const auto triangle = TrianglePlaces<S>::of(schedule.tiles_m, schedule.tiles_n);
    schedule.tiles_m = triangle.tiles_m, schedule.tiles_n = triangle.tiles_n;
  }
  const int64_t tiles = int64_t(batch) * schedule.tiles_m * schedule.tiles_n;
  const int chunks = schedule.stages / kChunk;
  const int blocks = plans::specialized_blocks(tiles, chunks, multiprocessors());
  const auto flags = share(schedule, tiles, chunks, blocks, sharing, S::kM * S::kN, S::kConsumers, context);
  MapsOf<S> maps{};
  static_cast<BoxMaps&>(maps) = BoxMaps(a, S::kM, b, S::kN);
  if constexpr (S::kMirrors)
    maps.mirrored = {result.turned_map(g, batch), r.out, r.row_stride, r.batch_stride, int(g.n)};
  if (in_boxes) maps.out = result.map(g, batch, transposed);
  if (arguments.adds) maps.c = boxes_of_c(g, batch, copies, context).map(g, batch, transposed);
  copies.launch(flags, context);
  const auto run = [&]<Major a_major, Major b_major, bool transposed = false>() {
    launch<gemm_wgmma_specialized_kernel<S, ExchangedElements<T, transposed>, a_major, b_major, transposed>>(
        "wgmma_specialized", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true},
        context)(maps, arguments);
  };
  if constexpr (kFuses<S>) {
    run.template operator()<Major::k, Major::k>();
  } else {
    if constexpr (sizeof(T) != 2) {
      if constexpr (!S::kLower) {
        if (transposed) return run.template operator()<Major::mn, Major::k, true>();
      }
      if (a.major == Major::mn) return run.template operator()<Major::mn, Major::k>();
    }
    operands.with_majors(run);
  }
}

// For .ci/run nvcc leaves out the narrower tiles of triangles, which take fewer registers
// (csrc/cuda/cuda.cmake).
#if FASTGEMM_NO_TWINS
template <class S>
inline constexpr bool kIsBuiltFor = !S::kLower || S::kN == 256;
#else
template <class S>
inline constexpr bool kIsBuiltFor = true;
#endif

// `lower`: only the lower triangle is asked for. `mirrors`: the upper triangle is to be its transpose. If
// bytes are unsigned, or if the product is computed as C^T, both triangles are computed. The width of tiles
// does not change the order of a sum; sharing tiles does.
template <class T, class Storage>
void gemm_tiles(const Gemm<Storage>& problem, int batch, bool lower, bool mirrors, const Sharing& sharing,
                const Epilogue& epilogue, Context& context) {
  RowCopies copies;
  const BoxOperands<Storage> operands(problem, batch, copies, context, true);
  Gemm<Storage> g = problem;
  if (g.m == 1) g.result.row_stride = ceil_div(g.n, 16) * 16;
  const bool in_boxes = boxes_of_result(g).writable(g, batch);
  lower = lower && std::is_same_v<T, Storage> && !operands.transposed;
  const auto run = [&]<int columns>() {
    if constexpr (std::is_same_v<Accumulator<T>, float>)
      if (epilogue.asked())
        return launch_tiles<Fusing<Shape<columns>>, T>(g, operands, batch, sharing, copies, context,
                                                       epilogue);
    if constexpr (kIsHalf<T> && kIsBuiltFor<MirroredShape<columns>>)
      if (mirrors)
        return launch_tiles<MirroredShape<columns>, T>(g, operands, batch, sharing, copies, context);
    if constexpr (std::is_same_v<T, Storage> && kIsBuiltFor<LowerShape<columns>>)
      if (lower) return launch_tiles<LowerShape<columns>, T>(g, operands, batch, sharing, copies, context);
    launch_tiles<Shape<columns>, T>(g, operands, batch, sharing, copies, context);
  };
  const int columns = plans::specialized_columns(batch, operands.a.side, operands.b.side, int(sizeof(T)),
                                                 in_boxes, multiprocessors(), lower);
  switch (epilogue.asked() && problem.result.wide ? std::min(columns, 192) : columns) {
    case 128:
      return run.template operator()<128>();
    case 192:
      return run.template operator()<192>();
    default:
      return run.template operator()<256>();
  }
}

}  // namespace

void gemm_wgmma_specialized(const GemmProblem& given, Context& context) {
  if (given.invariant && multiply_few_rows(given, context)) return;
  const GemmProblem problem = with_row_as_bias(given);
  run_with_storage<float, Half, BFloat16>(problem, context, [&]<class T>(const auto& g, int batch) {
    gemm_tiles<T>(g, batch, problem.triangle == 1, mirrors_in_boxes(problem),
                  problem.invariant ? plans::kUnshared : plans::kLastWave, problem.epilogue, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
