// The common frame of persistent, warp-specialized kernels. A producer warp fills a ring, warpgroups multiply
// 64 rows each from it, and results are stored asynchronously. The kernels are wgmma_specialized,
// packed_tiles, whose X are packed weights, and scaled_wgmma, which has a consumer of its own. Contract:
// produce() and consume() compute a block's parts of tiles (parts/schedules/chunks.cuh). A kernel brings its
// Source: Source::Producer fills stages, and Source::Consumer multiplies them into Source::kSums sums of a
// thread. adjust(sum, part) returns the S::kSums results of a finished tile: the sums as they are, or
// changed.
#pragma once

#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/schedules/chunks.cuh"
#include "cuda/gemm/parts/storage_element.cuh"
#include "cuda/gemm/parts/stores/box_rows.cuh"
#include "cuda/gemm/parts/stores/box_store.cuh"
#include "cuda/gemm/parts/stores/boxes.cuh"
#include "cuda/gemm/parts/wgmma_kernel.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {

// The shared memory of a block. Tail is the part that its schedule keeps there.
struct NoTail {};
template <int STAGES, int STAGE_BYTES, int CONSUMER_WARPS, class Tail>
struct RoomShared {
  unsigned char stage[STAGES][STAGE_BYTES];  // a tile of X, then one of Y
  StagingBoxes staging[CONSUMER_WARPS];
  RingBarriers<STAGES> ring;
  BoxBarriers boxes[CONSUMER_WARPS];
  [[no_unique_address]] Tail tail;

  // All threads call it, before a barrier of the block.
  __device__ __forceinline__ void init(int producers = 1) {
    if (threadIdx.x != 0) return;
    ring.init(producers, CONSUMER_WARPS);
    for (BoxBarriers& b : boxes)
      for (int i = 0; i < 2; ++i) init_barrier(&b.full[i], 1), init_barrier(&b.empty[i], 1);
    fence_barrier_init();
  }
};

// Block tile (kM, kN), of which each consumer warpgroup computes 64 rows, and the ring of stages.
template <int N, int STAGE_BYTES, class Tail = NoTail, int M = plans::kSpecializedM>
struct RoomShape {
  static constexpr bool kLower = false, kMirrors = false, kAddsC = true, kSkipsHalves = false;
  static constexpr bool kFences = false;  // as WgmmaConsumer
  static constexpr int kHeldBoxes = 4;
  static constexpr int kM = M, kN = N;
  static constexpr int kConsumers = kM / 64, kConsumerWarps = 4 * kConsumers;  // warpgroups
  static constexpr int kConsumerThreads = 128 * kConsumers, kThreads = kConsumerThreads + 128;
  static constexpr int kSums = kN / 2;  // per consumer thread
  // Staging boxes take the rest, 4 KiB for each warp.
  static constexpr int kRingBytes = (kConsumers <= 2 ? 192 : kConsumers == 3 ? 176 : 152) << 10;
  static constexpr int kStageBytes = STAGE_BYTES, kStages = kRingBytes / kStageBytes;
  using Shared = RoomShared<kStages, kStageBytes, kConsumerWarps, Tail>;
  static_assert(sizeof(Shared) <= 227 << 10);
  static_assert(kSums % 4 == 0, "partial sums are handed over 16 bytes at a time");
};

// Tiles of wgmma_specialized. Narrower tiles are slower for their size. They are for products that have too
// few wide tiles for all multiprocessors, or whose wide tiles leave many multiprocessors idle in the last
// wave.
template <int N>
struct Shape : RoomShape<N, (plans::kSpecializedM + N) * 128> {};

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
template <bool transposed, class Place>
__device__ __forceinline__ RowsPlace place_of_box(const Place& tile, int warp, int index, int bytes) {
  const int row = tile.row + kWarpRows * warp;
  const int column =
      tile.column + index * (transposed ? kBoxBytes / int(box_swizzle(true, bytes)) : 128 / bytes);
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

// The schedule of one product or of a batch of equal ones. Any schedule must have these functions:
// each_part() and place() as in parts/wgmma_kernel.cuh; origin(maps, part): where the producer begins;
// ends(part): whether it is the last part of its tile; finishes(): as in parts/schedules/chunks.cuh;
// stored_at(tile) and rows(tile): where results go.
template <class S_, class T>
struct PersistentSchedule {
  using S = S_;
  using Element = T;
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
  __device__ __forceinline__ StageOrigin origin(const BoxMaps& maps, const Part& part) const {
    return maps.origin(place(part));
  }
  __device__ __forceinline__ TileOrigin<S> stored_at(int tile) const { return {tile, g.schedule}; }
  __device__ __forceinline__ const ResultRows& rows(int) const { return g.rows; }
  __device__ __forceinline__ bool ends(const Part& part) const { return part.end == g.schedule.work.steps; }
  __device__ __forceinline__ bool finishes(Accumulator<T> (&sum)[S::kSums], const Part& part,
                                           int warpgroup) const {
    return FASTGEMM_TARGET::finishes<S>(g.schedule, sum, part, warpgroup);
  }
};

// The producer warp fills the ring with the stages of all parts. c goes through the ring, too, after the last
// stage of a tile: two boxes for each consumer warp at a time.
template <bool transposed, class MakeProducer, class Schedule>
__device__ __forceinline__ void produce(MakeProducer&& make_producer, const Maps& maps,
                                        const Schedule& schedule) {
  using S = typename Schedule::S;
  const auto& g = schedule.g;
  const bool elected = elect_one();
  auto producer = make_producer();
  schedule.each_part([&](const Part& part, int begin, int end) {
    producer.fill(schedule.origin(maps, part), begin, end, elected);
    if constexpr (S::kAddsC) {
      if (!g.adds || !schedule.ends(part)) return;
      const auto place = schedule.place(part);
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
  const bool adds = S::kAddsC && g.adds;
  if (Boxes::kPerRegister == 2 && !adds && g.alpha == Acc(1))
    return boxes.take(sum, tile, [](Acc x) { return x; });
  if (!adds) return boxes.take(sum, tile, [&](Acc x) { return g.alpha * x; });
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

template <class Source, class Out, bool transposed, class MakeConsumer, class Schedule, class Adjust>
__device__ __forceinline__ void consume(typename Schedule::S::Shared& shared, MakeConsumer&& make_consumer,
                                        const MapsOf<typename Schedule::S>& maps, const Schedule& schedule,
                                        int warp, Adjust&& adjust) {
  using S = typename Schedule::S;
  const auto& g = schedule.g;
  const auto place_of = [&](int tile) {
    return place_of_box<transposed>(schedule.stored_at(tile), warp, 0, int(sizeof(Out)));
  };
  const auto store = [&] {
    if constexpr (S::kMirrors)
      return MirroredStore(shared.staging[warp], &maps.out, maps.mirrored);
    else
      return BoxStore(shared.staging[warp], shared.boxes[warp], g.rows.data ? nullptr : &maps.out);
  }();
  HeldBoxes<Box<Out, typename Source::Products::Rows, transposed>, S::kSums, decltype(place_of),
            std::remove_const_t<decltype(store)>, S::kHeldBoxes>
      boxes(store, place_of);
  auto consumer = make_consumer();
  const auto store_held = [&](int i) {
    if (i < boxes.kHeld) boxes.store(i);
  };
  constexpr int kFirst = S::kHeldBoxes ? kChunk : 0;  // the stages between whose products boxes are stored
  multiply_parts<Source, Source::kSums, kFirst>(
      consumer, schedule, store_held, [&](auto& all, const Part& part) {
        if (!schedule.finishes(all, part, warp / 4)) return;
        Accumulator<typename Schedule::Element>(&sum)[S::kSums] = adjust(all, part);
        if constexpr (kFuses<S>)
          finish_strip<32, Out>(g.epilogue, schedule.place(part).column, g.rows.n, sum);
        finish_tile<S>(shared, g, part.tile, sum, boxes, consumer.at, warp);
      });
  boxes.store_all();
  wait_stores_read<0>();
}

// Stores the boxes of every kRowStorers-th consumer warp where the TMA cannot store them.
inline constexpr int kRowStorers = 3;
template <class Out, bool transposed, class Schedule>
__device__ __forceinline__ void store_boxes(typename Schedule::S::Shared& shared, const Schedule& schedule,
                                            int first_warp) {
  using S = typename Schedule::S;
  constexpr int kBoxes = S::kM * S::kN / S::kConsumerWarps * int(sizeof(Out)) / kBoxBytes;
  constexpr bool kOdd = kBoxes % 2 != 0;
  uint32_t phase = 0;  // with kOdd: how many boxes were stored for each warp
  schedule.each_part([&](const Part& part, int, int) {
    if (!schedule.ends(part)) return;
    const auto tile = schedule.stored_at(part.tile);
    FASTGEMM_NO_UNROLL
    for (int index = 0; index < kBoxes; ++index) {
      const int turn = kOdd ? int(phase % 2) : index % 2;
      FASTGEMM_NO_UNROLL
      for (int warp = first_warp; warp < S::kConsumerWarps; warp += kRowStorers) {
        BoxBarriers& barriers = shared.boxes[warp];
        wait_phase(&barriers.full[turn], kOdd ? phase / 2 % 2 : phase);
        store_rows<Out, BoxShape<Out, transposed>>(
            shared.staging[warp].box[turn], schedule.rows(part.tile),
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

}  // namespace fastgemm::FASTGEMM_TARGET
