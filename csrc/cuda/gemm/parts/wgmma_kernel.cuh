// A kernel from parts: one producer warp fills the ring, and warpgroups of 64 rows multiply from it.
// Contract: run_wgmma(shared, source, schedule, store) computes a block's parts of tiles. What differs from
// kernel to kernel is an argument:
//
//   source     BoxSource (below): the boxes of both operands, and what multiplies them
//   schedule   each_part(body): body(part, begin, end) for the block's parts in turn, with their stages
//              of k, one at least; place(part): where one lies, which takes no access to memory
//              (parts/schedules/)
//   store      store(sum, part): what becomes of the sums of a part (parts/epilogues/, parts/stores/)
//
//   producer    init barriers | wait for the kernel before | fill the ring | meet | fill free stages
//   consumers   ................................................ wait ...... | meet | multiply, store
//
// The producer meets the consumers only when the ring is full or all is requested: the first copies matter
// more than an early start of the consumers.
#pragma once

#include "cuda/gemm/parts/main_loop.cuh"
#include "cuda/gemm/parts/schedules/stream_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <int STAGES, int STAGE_BYTES, int CONSUMER_WARPS>
struct WgmmaShared {
  static constexpr int kStages = STAGES, kStageBytes = STAGE_BYTES, kConsumerWarps = CONSUMER_WARPS;
  static constexpr int kThreads = 32 * kConsumerWarps + 32;
  static constexpr bool kFences = false;
  unsigned char stage[kStages][kStageBytes];  // a tile of X, then one of Y
  RingBarriers<kStages> ring;
};

// The operands of a kernel.
struct BoxMaps {
  TensorMap x, y;
  int batch_x, batch_y;  // 0 if the batch shares the operand

  BoxMaps() = default;
  template <class T>
  BoxMaps(const BoxOperand<T>& of_x, int rows, const BoxOperand<T>& of_y, int columns)
      : x(of_x.map(rows)),
        y(of_y.map(columns)),
        batch_x(of_x.batch_stride != 0),
        batch_y(of_y.batch_stride != 0) {}

  template <class Place>
  __device__ __forceinline__ StageOrigin origin(const Place& at) const {
    return {at.row, at.column, at.batch * batch_x, at.batch * batch_y};
  }
};

// Whether other blocks also read an operand. If not, L2 evicts it first.
enum class Read { often, once };

// X has ROWS rows, 64 for each warpgroup, and Y has COLUMNS.
template <class E, Major x_major, int ROWS, Read x_read, Major y_major, int COLUMNS, Read y_read>
struct BoxSource {
  using X = OperandTile<E, x_major, ROWS>;
  using Y = OperandTile<E, y_major, COLUMNS>;
  using Sum = Accumulator<E>;
  static constexpr int kSums = COLUMNS / 2;  // of a thread
  static constexpr bool kRegisters = x_major == Major::mn && sizeof(E) != 2;
  using Products =
      std::conditional_t<kRegisters, RegisterOperand<E, X, Y>, SharedOperands<E, X, Y, x_major, y_major>>;
  template <class Shared>
  using Producer =
      StageProducer<Shared::kStages, Shared::kStageBytes, X, Y, x_read == Read::once, y_read == Read::once>;
  template <class Shared>
  using Consumer = WgmmaConsumer<Shared::kStages, Shared::kStageBytes, Products, Shared::kFences>;

  const BoxMaps& maps;
  int bytes = X::kBytes + Y::kBytes;  // of a stage
};

// Makes the barriers of the ring. If one thread asks for the boxes, it fetches their descriptors while the
// kernel before ends. The whole warp calls this.
template <class Shared>
__device__ __forceinline__ void init_ring(Shared& shared, const BoxMaps& maps, int producers = 1) {
  if (elect_one()) {
    shared.ring.init(producers, Shared::kConsumerWarps);
    fence_barrier_init();
    if (producers == 1) prefetch_map(&maps.x), prefetch_map(&maps.y);
  }
  __syncwarp();
}

// All threads that use the ring meet here.
template <class Shared>
__device__ __forceinline__ void meet() {
  named_barrier(1, Shared::kThreads);
}

template <class Shared, class Source, class Schedule>
__device__ __forceinline__ void produce_parts(Shared& shared, const Source& source,
                                              const Schedule& schedule) {
  const bool elected = elect_one();
  typename Source::template Producer<Shared> producer(shared.stage[0], shared.ring, source.maps.x,
                                                      source.maps.y, source.bytes);
  int requested = 0;
  schedule.each_part([&](const Part& part, int begin, int end) {
    const StageOrigin origin = source.maps.origin(schedule.place(part));
    grid_dependency_wait();  // after the divisions; for later parts it returns at once
    producer.fill(origin, begin, end, elected, [&] {
      if (requested++ == Shared::kStages) meet<Shared>();
    });
  });
  if (requested <= Shared::kStages) meet<Shared>();
}

// Calls body with the sums of a part. A schedule whose tiles may be narrow has columns_of(part), a multiple
// of 64. In that case the sums are those of the first columns_of(part) columns, which shorter instructions
// multiply.
template <class Schedule, class Acc, int R, class Body>
__device__ __forceinline__ void with_sums_of(const Schedule& schedule, const Part& part, Acc (&sum)[R],
                                             Body&& body) {
  if constexpr (R == 128 && requires { schedule.columns_of(part); }) {
    const int columns = schedule.columns_of(part);
    if (columns <= 64) return body(reinterpret_cast<Acc(&)[32]>(sum));
    if (columns <= 128) return body(reinterpret_cast<Acc(&)[64]>(sum));
    if (columns <= 192) return body(reinterpret_cast<Acc(&)[96]>(sum));
  }
  body(sum);
}

// A thread has SUMS sums of a tile: (64, 2 * SUMS) for each warpgroup, 16 rows for each warp. A part has at
// least FIRST stages; meanwhile(i) runs between the products of the first of them.
template <class Source, int SUMS, int FIRST, class Consumer, class Schedule, class Meanwhile, class Store>
__device__ __forceinline__ void multiply_parts(Consumer& consumer, const Schedule& schedule,
                                               Meanwhile&& meanwhile, Store&& store) {
  typename Source::Sum sum[SUMS];
  schedule.each_part([&](const Part& part, int begin, int end) {
    if constexpr (requires { consumer.begin(sum, schedule, part, begin); })
      consumer.begin(sum, schedule, part, begin);
    with_sums_of(schedule, part, sum, [&](auto& sums) {
      FASTGEMM_UNROLL
      for (int i = 0; i < FIRST; ++i) consumer.multiply(sums, i > 0, [&] { meanwhile(i); });
      FASTGEMM_NO_UNROLL
      for (int left = end - begin - FIRST; left > 0; --left)
        consumer.multiply(sums, FIRST > 0 || left < end - begin, [] {});
      consumer.finish(sums);
    });
    store(sum, part);
  });
}

template <class Source, int SUMS, class Shared, class Schedule, class Store>
__device__ __forceinline__ void consume_parts(Shared& shared, const Schedule& schedule, int warp,
                                              Store&& store) {
  typename Source::template Consumer<Shared> consumer(shared.ring, shared.stage[0], warp);
  multiply_parts<Source, SUMS, 0>(consumer, schedule, [](int) {}, store);
}

template <class Shared, class Source, class Schedule, class Store>
__device__ __forceinline__ void run_wgmma(Shared& shared, const Source& source, const Schedule& schedule,
                                          int warp, Store&& store) {
  const bool produces = warp == Shared::kConsumerWarps;
  if (produces) init_ring(shared, source.maps);
  launch_dependents();
  if (produces) return produce_parts(shared, source, schedule);
  meet<Shared>();
  consume_parts<Source, Source::kSums>(shared, schedule, warp, store);
}

}  // namespace fastgemm::FASTGEMM_TARGET
