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
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/schedules/chunks.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/parts/storage_element.cuh"
#include "cuda/gemm/parts/stores/box_rows.cuh"
#include "cuda/gemm/parts/stores/box_store.cuh"
#include "cuda/gemm/parts/stores/boxes.cuh"
#include "cuda/gemm/parts/wgmma_kernel.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Block tile (kM, kN), of which each consumer warpgroup computes 64 rows, and the ring of stages. Narrower
// tiles are slower for their size. They are for products that have too few wide tiles for all
// multiprocessors, or whose wide tiles leave many multiprocessors idle in the last wave.
template <int N>
struct Shape {
  static constexpr bool kLower = false, kMirrors = false;
  static constexpr int kM = plans::kSpecializedM, kN = N;
  static constexpr int kConsumers = kM / 64, kConsumerWarps = 4 * kConsumers;  // warpgroups
  static constexpr int kConsumerThreads = 128 * kConsumers, kThreads = kConsumerThreads + 128;
  static constexpr int kSums = kN / 2;  // per consumer thread
  static constexpr int kStageBytes = (kM + kN) * 128, kStages = (192 << 10) / kStageBytes;

  struct Shared {
    unsigned char stage[kStages][kStageBytes];  // (kM, kK) of A, then (kN, kK) of B
    StagingBoxes staging[kConsumerWarps];
    RingBarriers<kStages> ring;
    BoxBarriers boxes[kConsumerWarps];
  };
  static_assert(sizeof(Shared) <= 227 << 10);
  static_assert(kSums % 4 == 0, "partial sums are handed over 16 bytes at a time");
};

// LowerShape computes only the tiles of the lower triangle of a symmetric result. MirroredShape also stores
// each of them a second time, transposed, into the upper triangle.
template <int N>
struct LowerShape : Shape<N> {
  static constexpr bool kLower = true;
};
template <int N>
struct MirroredShape : LowerShape<N> {
  static constexpr bool kMirrors = true;
};
// With 64 x 256 sums too few registers are left for an epilogue whose results are float32 while the operands
// have 16 bits.
template <class S>
inline constexpr bool kMayFinishWide = !kFuses<S> || S::kN < 256;

template <class T>
struct Arguments {
  Accumulator<T> alpha, beta;
  int out_bytes;    // bytes of an element of C
  bool adds;        // beta is not 0
  ResultRows rows;  // used where the TMA cannot store C
  ChunkSchedule<Accumulator<T>> schedule;
  Epilogue epilogue;  // used by kernels that fuse it
};

// The TMA descriptors of the operands, of the matrix c that is added times beta, and of the result.
struct Maps : BoxMaps {
  TensorMap c, out;
};
struct MirroredMaps : Maps {
  MirroredResult mirrored;
};
template <class S>
using MapsOf = std::conditional_t<S::kMirrors, MirroredMaps, Maps>;

// The place in C of box `index` of a warp's rows of a tile. `bytes` is the size of an element of C.
template <bool transposed, class S>
__device__ __forceinline__ RowsPlace place_of_box(const TileOrigin<S>& tile, int warp, int index, int bytes) {
  const int row = tile.row + kWarpRows * warp;
  const int column = tile.column + index * (transposed ? kBoxBytes / 64 : 128 / bytes);
  return {transposed ? column : row, transposed ? row : column, tile.batch};
}

// Whether to skip a tile that the schedule of a triangle has. With tiles of (128, 192) the triangle is
// divided into squares of 3 x 2 tiles: a square on the diagonal has a tile above the diagonal, and the last
// squares may have tiles below C's last row.
template <class S, class T>
__device__ __forceinline__ bool is_skipped(const TileOrigin<S>& tile, const Arguments<T>& g) {
  if constexpr (S::kLower && S::kN % S::kM != 0)
    return tile.column >= tile.row + S::kM || tile.row >= g.rows.m;
  else
    return false;
}

template <class S, class T>
struct Schedule {
  const Arguments<T>& g;
  Parts parts;

  template <class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    Parts left = parts;
    Part part;
    while (left.next(part)) {
      if constexpr (S::kLower)
        if (is_skipped(place(part), g)) continue;
      const int begin = part.first * kChunk;
      body(part, begin, begin + g.schedule.stages_of(part));
    }
  }
  __device__ __forceinline__ TileOrigin<S> place(const Part& part) const { return {part.tile, g.schedule}; }
};

// The producer warp fills the ring with the stages of all parts. c goes through the ring, too, after the last
// stage of a tile: two boxes for each consumer warp at a time.
template <class S, class Source, bool transposed, class T>
__device__ __forceinline__ void produce(typename S::Shared& shared, const Maps& maps,
                                        const Schedule<S, T>& schedule) {
  const Arguments<T>& g = schedule.g;
  const bool elected = elect_one();
  typename Source::template Producer<S> producer(shared.stage[0], shared.ring, maps.x, maps.y);
  schedule.each_part([&](const Part& part, int begin, int end) {
    const TileOrigin<S> place = schedule.place(part);
    producer.fill(maps.origin(place), begin, end, elected);
    if (!g.adds || part.end != g.schedule.work.steps) return;
    constexpr int kBoxes = 2 * S::kConsumerWarps;
    static_assert(kBoxes * kBoxBytes <= S::kStageBytes);
    FASTGEMM_NO_UNROLL
    for (int first_box = 0; first_box < S::kN * g.out_bytes / 128; first_box += 2) {
      producer.fill_next(elected, kBoxes * kBoxBytes, [&](unsigned char* to, Barrier* full) {
        FASTGEMM_NO_UNROLL
        for (int i = 0; i < kBoxes; ++i) {
          const RowsPlace from = place_of_box<transposed>(place, i / 2, first_box + i % 2, g.out_bytes);
          load_box(to + i * kBoxBytes, &maps.c, full, from.column, from.row, from.plane);
        }
      });
    }
  });
}

// The epilogue of a tile: alpha * sums + beta * c. The boxes of c are in the ring from `at` on.
template <class S, class Boxes, class T>
__device__ __forceinline__ void finish_tile(typename S::Shared& shared, const Arguments<T>& g, int tile,
                                            const Accumulator<T> (&sum)[S::kSums], Boxes& boxes,
                                            RingPosition<S::kStages>& at, int warp) {
  using Acc = Accumulator<T>;
  // With alpha = 1 no multiplication is needed, which halves the instructions for 16-bit results. For other
  // types it would save nothing, because the values have to be moved between registers anyway.
  if (Boxes::kPerRegister == 2 && !g.adds && g.alpha == Acc(1))
    return boxes.take(sum, tile, [](Acc x) { return x; });
  if (!g.adds) return boxes.take(sum, tile, [&](Acc x) { return g.alpha * x; });
  const auto next_two = [&] {
    wait_phase(&shared.ring.full[at.stage], at.phase);
    return shared.stage[at.stage] + warp * 2 * kBoxBytes;
  };
  const auto done = [&] {
    fence_async_shared();  // an arrival alone does not wait for the loads of c
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&shared.ring.empty[at.stage]);
    at.advance();
  };
  boxes.take(sum, tile, [&](Acc x, Acc c) { return g.alpha * x + g.beta * c; }, next_two, done);
}

template <class S, class Source, class Out, bool transposed, class T>
__device__ __forceinline__ void consume(typename S::Shared& shared, const MapsOf<S>& maps,
                                        const Schedule<S, T>& schedule, int warp) {
  const Arguments<T>& g = schedule.g;
  const auto place_of = [&](int tile) {
    return place_of_box<transposed>(TileOrigin<S>(tile, g.schedule), warp, 0, int(sizeof(Out)));
  };
  const auto store = [&] {
    if constexpr (S::kMirrors)
      return MirroredStore(shared.staging[warp], &maps.out, maps.mirrored);
    else
      return BoxStore(shared.staging[warp], shared.boxes[warp], g.rows.data ? nullptr : &maps.out);
  }();
  HeldBoxes<Box<Out, typename Source::Products::Rows, transposed>, S::kSums, decltype(place_of),
            std::remove_const_t<decltype(store)>>
      boxes(store, place_of);
  typename Source::template Consumer<S> consumer(shared.ring, shared.stage[0], warp);
  const auto store_held = [&](int i) {
    if (i < boxes.kHeld) boxes.store(i);
  };
  multiply_parts<Source, S::kSums, kChunk>(consumer, schedule, store_held, [&](auto& sum, const Part& part) {
    if (!finishes<S>(g.schedule, sum, part, warp / 4)) return;
    if constexpr (kFuses<S>) finish_strip<32, Out>(g.epilogue, schedule.place(part).column, g.rows.n, sum);
    finish_tile<S>(shared, g, part.tile, sum, boxes, consumer.at, warp);
  });
  boxes.store_all();
  wait_stores_read<0>();
}

// Stores the boxes of every kRowStorers-th consumer warp where the TMA cannot store them.
inline constexpr int kRowStorers = 3;
template <class S, class Out, bool transposed, class T>
__device__ __forceinline__ void store_boxes(typename S::Shared& shared, const Schedule<S, T>& schedule,
                                            int first_warp) {
  const Arguments<T>& g = schedule.g;
  constexpr int kBoxes = S::kM * S::kN / S::kConsumerWarps * int(sizeof(Out)) / kBoxBytes;
  constexpr bool kOdd = kBoxes % 2 != 0;
  uint32_t phase = 0;  // with kOdd: how many boxes were stored for each warp
  schedule.each_part([&](const Part& part, int, int) {
    if (part.end != g.schedule.work.steps) return;
    const TileOrigin<S> tile = schedule.place(part);
    FASTGEMM_NO_UNROLL
    for (int index = 0; index < kBoxes; ++index) {
      const int turn = kOdd ? int(phase % 2) : index % 2;
      FASTGEMM_NO_UNROLL
      for (int warp = first_warp; warp < S::kConsumerWarps; warp += kRowStorers) {
        BoxBarriers& barriers = shared.boxes[warp];
        wait_phase(&barriers.full[turn], kOdd ? phase / 2 % 2 : phase);
        store_rows<Out, BoxShape<Out, transposed>>(
            shared.staging[warp].box[turn], g.rows,
            place_of_box<transposed>(tile, warp, index, int(sizeof(Out))));
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(&barriers.empty[turn]);
      }
      if (kOdd)
        ++phase;
      else if (turn == 1)
        phase ^= 1;
    }
  });
}

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
  if (threadIdx.x == 0) {
    shared->ring.init(1, S::kConsumerWarps);
    for (BoxBarriers& b : shared->boxes)
      for (int i = 0; i < 2; ++i) init_barrier(&b.full[i], 1), init_barrier(&b.empty[i], 1);
    fence_barrier_init();
  }
  __syncthreads();
  launch_dependents();
  const int warp = warp_index();
  const Schedule<S, StorageElement<T>> schedule{g, {g.schedule.work, int(blockIdx.x), int(gridDim.x)}};
  const auto with_result = [&](auto&& body) {
    if constexpr (Result<T>::kMayBeWide && !S::kMirrors && kMayFinishWide<S>) {
      if (g.out_bytes == 4) return body.template operator()<float>();
    }
    body.template operator()<typename Result<T>::Stored>();
  };
  if (warp < S::kConsumerWarps) {
    claim_registers<232>();
    grid_dependency_wait();
    with_result([&]<class Out>() { consume<S, Source, Out, transposed>(*shared, maps, schedule, warp); });
    return;
  }
  release_registers<40>();
  grid_dependency_wait();
  if (warp == S::kConsumerWarps) return produce<S, Source, transposed>(*shared, maps, schedule);
  if (S::kMirrors || g.rows.data == nullptr) return;
  with_result(
      [&]<class Out>() { store_boxes<S, Out, transposed>(*shared, schedule, warp - S::kConsumerWarps - 1); });
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

// `lower`: only the lower triangle is asked for. `mirrors`: the upper triangle is to be its transpose.
// Products of unsigned bytes, and those computed as C^T, are computed whole. The width of tiles does not
// change the order of a sum; sharing tiles does.
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
    if constexpr (kIsHalf<T>)
      if (mirrors)
        return launch_tiles<MirroredShape<columns>, T>(g, operands, batch, sharing, copies, context);
    if constexpr (std::is_same_v<T, Storage>)
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
