// Level 6 on Hopper for products of groups of uneven size: the experts of a mixture, and the gradients of
// their weights. What changes from wgmma_specialized:
//   - the kernel reads where groups end, and its blocks find their tiles from that
//     (parts/schedules/groups.cuh);
//   - groups of rows: tiles are those of C^T, (128 columns of C, up to 256 rows of a group), because a group
//     may have few rows. A tile with fewer rows loads and multiplies 64, 128 or 192. A tile may reach into
//     the next group. The rows of that group are other columns of wgmma, and their sums are not stored;
//   - groups of k: boxes begin and end where a group does (parts/sources/ragged.cuh), so that no value of
//     another group, which may be NaN, is multiplied;
//   - rows of a may be gathered by index while they are loaded (parts/sources/gathered.cuh);
//   - a bias is added to the sums in registers;
//   - with a gate and a value (GemmProblem::gated), X has rows of both. Their products are joined in
//     registers. So they are never stored, and only the result is rounded (parts/sources/gated.cuh).
//
// Rows of C beyond the last group are set to zero by all blocks at the end.
#include "cuda/device/activation.cuh"
#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/schedules/groups.cuh"
#include "cuda/gemm/parts/sources/gated.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// The producer's warpgroup also looks up tiles, gathers rows, and stores rows that the TMA cannot store. This
// takes more registers than in wgmma_specialized. The three warpgroups begin with 168 registers a thread, and
// may claim no more than these in all: otherwise one would wait forever.
constexpr int kConsumerRegisters = 216, kProducerRegisters = 72;
static_assert(2 * kConsumerRegisters + kProducerRegisters <= 3 * 168);

// `gated`: X has two rows for each column of C.
template <int N, class Tiles, bool gated = false>
struct GroupShape : RoomShape<N, ((gated ? 2 : 1) * plans::kSpecializedM + N) * 128, Tiles> {
  static constexpr bool kGated = gated, kAddsC = false;
  static constexpr bool kFences = std::is_same_v<Tiles, GroupTiles>;  // rows may be gathered
  static constexpr int kHeldBoxes = N == 256 ? 3 : 4;                 // four would leave too few registers
};

template <class Schedule, Major x_major, Major y_major, class T = typename Schedule::Element>
__global__ void __launch_bounds__(Schedule::S::kThreads, 1)
    gemm_grouped_wgmma_kernel(const __grid_constant__ Maps maps, const __grid_constant__ GroupArguments<T> g,
                              void* out) {
#if FASTGEMM_SM90A
  using S = typename Schedule::S;
  using Boxes = BoxSource<T, x_major, S::kM, Read::often, y_major, S::kN, Read::often>;
  using Source = std::conditional_t<S::kGated, GatedSource<T, x_major, S::kM, S::kN>, Boxes>;
  constexpr bool kTransposed = Schedule::kTransposed;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  if (threadIdx.x == S::kConsumerThreads)
    prefetch_map(&maps.x), prefetch_map(&maps.y), prefetch_map(&maps.out);
  using X = typename Source::X;
  using Y = typename Source::Y;
  using Gathering = GatheringProducer<S::kStages, S::kStageBytes, X, Y, kTransposed ? S::kN : 64>;
  shared->init(g.gathered.index ? Gathering::kProducers : 1);
  launch_dependents();
  grid_dependency_wait();
  Schedule::plan_work(shared->tail, g);
  __syncthreads();
  const int warp = warp_index();
  // It is made where it is used. If it were made once, before the branch below, it would spill uniform
  // registers.
  const auto parts = [&] { return Schedule{g, shared->tail}; };
  const auto with_result = [&](auto&& body) {
    if (g.out_bytes == 4) return body.template operator()<float>();
    body.template operator()<T>();
  };
  if (warp < S::kConsumerWarps) {
    claim_registers<kConsumerRegisters>();
    const Schedule schedule = parts();
    with_result([&]<class Out>() {
      const auto consumer = [&] {
        return typename Source::template Consumer<S>(shared->ring, shared->stage[0], warp);
      };
      const auto adjust = [&](auto& sum, const Part& part) -> auto& {
        auto& halves = reinterpret_cast<float(&)[Source::kSums / S::kSums][S::kSums]>(sum);
        if constexpr (kTransposed) {
          if (g.bias != nullptr) {
            const GroupPlace at = schedule.within_group(part.tile);
            FASTGEMM_UNROLL
            for (int i = 0; i < Source::kSums / S::kSums; ++i)
              add_bias<Out>(halves[i], g, at.batch, at.row + 16 * warp + fresh_lane() / 4, i * g.rows.n);
          }
        }
        if constexpr (S::kGated) {
          FASTGEMM_UNROLL
          for (int i = 0; i < S::kSums; ++i)
            halves[0][i] = short_activation<Activation::silu>(halves[0][i]) * halves[1][i];
        }
        return halves[0];
      };
      consume<Source, Out, kTransposed>(*shared, consumer, maps, schedule, warp, adjust);
      if constexpr (kTransposed) clear_rest<Out, S::kConsumerThreads>(out, g);
    });
    return;
  }
  release_registers<kProducerRegisters>();
  if constexpr (kTransposed) {
    if (g.gathered.index != nullptr) {
      const Schedule schedule = parts();
      Gathering producer(shared->stage[0], shared->ring, maps.x, g.gathered,
                         int(threadIdx.x) - S::kConsumerThreads);
      schedule.each_part([&](const Part& part, int begin, int end) {
        producer.fill(schedule.origin(maps, part), begin, end);
      });
      return;
    }
  }
  if (warp == S::kConsumerWarps) {
    const auto producer = [&] {
      return GroupProducer<S::kStages, S::kStageBytes, X, Y>(shared->stage[0], shared->ring, maps.x, maps.y);
    };
    return produce<kTransposed>(producer, maps, parts());
  }
  if (g.rows.data == nullptr) return;
  const Schedule schedule = parts();
  with_result(
      [&]<class Out>() { store_boxes<Out, kTransposed>(*shared, schedule, warp - S::kConsumerWarps - 1); });
#endif
}

template <class T>
TensorMap ragged_operand(const BoxOperand<T>& o) {
  return begun_map({o.data, int(sizeof(T)), o.side, o.k, 1, o.row_stride * int64_t{sizeof(T)},
                    o.k * o.row_stride * int64_t{sizeof(T)}, SideBox<T>::kSide, 128 / int(sizeof(T)),
                    SideBox<T>::kSwizzle});
}

// The operand with the direction `major` along its rows. It is a copy if the operand lies in the other
// direction, or if the TMA cannot read it.
template <class T>
BoxOperand<T> along(Major major, const Side<T>& s, RowCopies& copies, Context& context) {
  BoxOperand<T> o = operand_in_place(s, 1);
  if (o.major != major) return copied_along(major, s, 1, context);
  if (o.readable()) return o;
  const PackedRows<T> copy = copies.add(s.data, o.rows(), o.columns(), o.row_stride, 1, 0, 1, context);
  o.data = copy.data, o.row_stride = copy.row_stride;
  return o;
}

template <class Schedule, Major x_major, Major y_major, class T = typename Schedule::Element>
void launch_groups(const Maps& maps, GroupArguments<T> arguments, const Gemm<T>& g, int blocks,
                   RowCopies& copies, Context& context) {
  using S = typename Schedule::S;
  std::span<uint32_t> flags;
  if (arguments.sharing.hand_over < plans::kUnshared.hand_over) {
    auto& s = arguments.schedule;
    const size_t count = size_t(blocks) * S::kConsumers;
    s.partials = static_cast<float*>(context.allocate(size_t(blocks) * S::kM * S::kN * sizeof(float)));
    s.flags = static_cast<uint32_t*>(context.allocate(count * sizeof(uint32_t)));
    flags = {s.flags, count};
  }
  copies.launch(flags, context);
  launch<gemm_grouped_wgmma_kernel<Schedule, x_major, y_major>>(
      "grouped_wgmma", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true},
      context)(maps, arguments, g.result.out);
}

template <class T>
void launch_row_groups(const GemmProblem& p, const Gemm<T>& g, Context& context) {
  RowCopies copies;
  const int groups = int(p.batch);
  Side<T> side_x = side_b(g, groups);
  if (p.gated) side_x.side *= 2;
  BoxOperand<T> x = box_operand(side_x, groups, std::min(g.n, g.k), false, copies, context);
  // The TMA loads no box that begins in the middle of 16 bytes, as one of values would.
  if (p.gated && x.major == Major::mn && g.n % kPer16Bytes<T> != 0)
    x = copied_along(Major::k, side_x, groups, context);
  const bool in_boxes = Boxes{g.result.out, g.result.row_stride, 0}.writable(g, 1);
  GroupArguments<T> arguments = group_arguments(p, g, in_boxes);
  const int wide = plans::group_columns(g.m, groups), columns = p.gated ? std::min(wide, 128) : wide;
  arguments.schedule.tiles_m = int(ceil_div(g.n, 128));
  arguments.schedule.stages = plans::specialized_stages(g.k, int(sizeof(T)));
  arguments.sharing = p.invariant || p.gated ? plans::kUnshared : plans::kLastWave;
  const int64_t most = (ceil_div(g.m, columns) + groups) * arguments.schedule.tiles_m;
  const int blocks = plans::specialized_blocks(most, arguments.schedule.stages / kChunk, multiprocessors());
  Maps maps{};
  maps.x = x.map(p.gated ? 64 : 128), maps.batch_x = x.batch_stride != 0;
  maps.y = p.groups.rows ? maps.x : along(Major::k, side_a(g, 1), copies, context).map(kRowsOfBox);
  maps.out = in_boxes ? map_of_group_rows(g) : maps.y;
  const auto run = [&]<int N, bool gated = false>() {
    using Schedule = RowGroups<GroupShape<N, GroupTiles, gated>, T>;
    if (x.major == Major::k)
      launch_groups<Schedule, Major::k, Major::k>(maps, arguments, g, blocks, copies, context);
    else
      launch_groups<Schedule, Major::mn, Major::k>(maps, arguments, g, blocks, copies, context);
  };
  if (p.gated)
    return columns == 64 ? run.template operator()<64, true>() : run.template operator()<128, true>();
  columns == 64 ? run.template operator()<64>() : run.template operator()<256>();
}

template <class T>
void launch_k_groups(const GemmProblem& p, const Gemm<T>& g, Context& context) {
  RowCopies copies;
  const int groups = int(p.batch);
  const BoxOperand<T> x = along(Major::mn, side_a(g, 1), copies, context);
  const BoxOperand<T> y = along(Major::mn, side_b(g, 1), copies, context);
  const Boxes result{g.result.out, g.result.row_stride, g.result.batch_stride};
  const bool in_boxes = result.writable(g, groups);
  GroupArguments<T> arguments = group_arguments(p, g, in_boxes);
  arguments.sharing = plans::kUnshared;
  auto& schedule = arguments.schedule;
  schedule.tiles_m = int(ceil_div(g.m, 128)), schedule.tiles_n = int(ceil_div(g.n, 256));
  const int64_t tiles = int64_t{groups} * schedule.tiles_m * schedule.tiles_n;
  const int blocks = plans::specialized_blocks(tiles, 1, multiprocessors());
  Maps maps{};
  maps.x = ragged_operand(x), maps.y = ragged_operand(y);
  maps.out = in_boxes ? result.map(g, groups, false) : maps.y;
  launch_groups<KGroups<GroupShape<256, NoTail>, T>, Major::mn, Major::mn>(maps, arguments, g, blocks, copies,
                                                                           context);
}

}  // namespace

void gemm_grouped_wgmma(const GemmProblem& p, Context& context) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  with_element<Half, BFloat16>(p.type, [&]<class T>() {
    const Gemm<T> g = gemm_of<T>(p);
    p.groups.by == GroupedBy::m ? launch_row_groups(p, g, context) : launch_k_groups(p, g, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
