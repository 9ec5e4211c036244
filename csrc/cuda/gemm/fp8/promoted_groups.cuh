// The common code of grouped_scaled_wgmma and grouped_bf16x6: groups of rows, and promoted sums. Contract:
// run_groups() is the whole kernel. The warps that multiply call multiply(...) with the type of the result.
// It calls multiply_whole_tiles(): finish(sum, part) may change the sums of a tile, which are then stored.
#pragma once

#include "cuda/gemm/fp8/promoted.cuh"
#include "cuda/gemm/parts/schedules/groups.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class Source, class Out, class Schedule, class Begin, class Finish>
__device__ __forceinline__ void multiply_whole_tiles(typename Schedule::S::Shared& shared, const Maps& maps,
                                                     const Schedule& schedule, int warp, Begin&& begin,
                                                     Finish&& finish) {
  using S = typename Schedule::S;
  const auto place_of = [&](int tile) {
    return place_of_box<true>(schedule.stored_at(tile), warp, 0, int(sizeof(Out)));
  };
  const BoxStore store(shared.staging[warp], shared.boxes[warp],
                       !S::kOnlyBoxes && schedule.g.rows.data ? nullptr : &maps.out);
  HeldBoxes<Box<Out, InOrder, true>, S::kSums, decltype(place_of), BoxStore, 0> boxes(store, place_of);
  typename Source::template Consumer<S> consumer(shared, warp);
  consume_promoted<S>(consumer, WholeTiles<Schedule>{schedule}, begin, [&](auto& sum, const Part& part) {
    finish(sum, part);
    boxes.take(sum, part.tile, [](float x) { return x; });
  });
  wait_stores_read<0>();
}

// `schedule()` makes the schedule where it is used; with_result(body) calls body with the type of the result.
template <class S, class Source, class T, class MakeSchedule, class WithResult, class Multiply>
__device__ __forceinline__ void run_groups(typename S::Shared& shared, const Maps& maps,
                                           const GroupArguments<T>& g, void* out, MakeSchedule&& schedule,
                                           WithResult&& with_result, Multiply&& multiply) {
  if (threadIdx.x == S::kConsumerThreads)
    prefetch_map(&maps.x), prefetch_map(&maps.y), prefetch_map(&maps.out);
  shared.init();
  launch_dependents();
  grid_dependency_wait();
  RowGroups<S, T>::plan_work(shared.tail, g);
  __syncthreads();
  const int warp = warp_index();
  if (warp < S::kConsumerWarps) {
    claim_registers<S::kConsumerRegisters>();
    with_result([&]<class Out>() {
      multiply.template operator()<Out>(schedule(), warp);
      clear_rest<Out, S::kConsumerThreads>(out, g);
    });
    return;
  }
  release_registers<S::kProducerRegisters>();
  if (warp == S::kConsumerWarps) {
    const auto producer = [&] {
      return GroupProducer<S::kStages, S::kStageBytes, typename Source::X, typename Source::Y>(
          shared.stage[0], shared.ring, maps.x, maps.y);
    };
    return produce<true>(producer, maps, schedule());
  }
  if (g.rows.data == nullptr) return;
  if constexpr (!S::kOnlyBoxes)
    with_result(
        [&]<class Out>() { store_boxes<Out, true>(shared, schedule(), warp - S::kConsumerWarps - 1); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
