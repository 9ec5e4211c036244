// scaled_wgmma for groups of uneven size: experts whose weights and tokens are 8-bit floating-point numbers.
// What changes from it:
//   - blocks find their tiles from the ends of the groups, which the kernel reads
//     (parts/schedules/groups.cuh);
//   - tiles are those of C^T, (256 columns of C, up to 128 rows of a group): the weights of a group have the
//     rows of wgmma. If its group has at most 64 rows for a tile, only the first half of the tile is loaded
//     and multiplied;
//   - scales belong to rows of a, and to columns of each group's b.
//
// A row of C is summed in the same order whatever the other rows are, and no tile is shared by blocks. Rows
// of C beyond the last group are set to zero.
#include "cuda/gemm/fp8/promoted_groups.cuh"
#include "cuda/gemm/fp8/scaled_shape.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <int M, int N>
struct GroupedScaledTail : GroupTiles {
  LineScales<N> scales[M / 64][2];  // of each warpgroup
};
template <int M, int N, int WIDTH>
struct GroupedScaledShape : ScaledShape<M, N, WIDTH, Scaling::sums, 128, GroupedScaledTail<M, N>> {
  static constexpr bool kSkipsHalves = WIDTH < N;
};

// The scales of the columns of each group's b, and of the rows of a.
struct GroupLineScales {
  LineScale columns;
  int64_t group_stride;  // of columns
  LineScale rows;

  __device__ __forceinline__ LineScale columns_of(int group) const {
    return {columns.data + group * group_stride, columns.stride, columns.lines};
  }
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_grouped_scaled_wgmma_kernel(const __grid_constant__ Maps maps,
                                     const __grid_constant__ GroupArguments<Out16> g,
                                     const __grid_constant__ GroupLineScales scales, void* out) {
#if FASTGEMM_SM90A
  using Source = PromotedSource<Plain, S::kM, S::kN, Scaling::sums, 128>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const auto with_result = [&](auto&& body) {
    if (g.out_bytes == 4) return body.template operator()<float>();
    body.template operator()<Out16>();
  };
  const auto multiply = [&]<class Out>(const auto& schedule, int warp) {
    LineScalesCopy<S::kN> copy(shared->tail.scales);
    multiply_whole_tiles<Source, Out>(
        *shared, maps, schedule, warp,
        [&](const Part& part) {
          const GroupPlace at = schedule.within_group(part.tile);
          copy.begin(scales.columns_of(at.batch), scales.rows, at.row + 64 * (warp_index() / 4),
                     schedule.g.range(at.batch).begin + at.column);
        },
        [&](auto& sum, const Part&) { copy.template multiply<true>(sum); });
  };
  const auto schedule = [&] { return RowGroups<S, Out16>{g, shared->tail}; };
  run_groups<S, Source>(*shared, maps, g, out, schedule, with_result, multiply);
#endif
}

}  // namespace

void gemm_grouped_scaled_wgmma(const GemmProblem& p, Context& context) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const Gemm<Out16> g = gemm_of<Out16>(p);
  RowCopies copies;
  const int groups = int(p.batch);
  const auto side = [&](const ConstMatrix& m, int64_t lines, int64_t line_stride, int64_t k_stride) {
    return Side<int8_t>{
        static_cast<const int8_t*>(m.data), lines, p.k, line_stride, k_stride, m.batch_stride};
  };
  const int64_t extents = std::min(p.n, p.k);
  const BoxOperand<int8_t> x =
      box_operand(side(p.b, p.n, p.b.col_stride, p.b.row_stride), groups, extents, false, copies, context);
  const BoxOperand<int8_t> y =
      box_operand(side(p.a, p.m, p.a.row_stride, p.a.col_stride), 1, extents, false, copies, context);
  const GroupLineScales scales{line_scale(p.scales_b.transposed(), p.n, p.k, context),
                               p.scales_b.group_stride, line_scale(p.scales_a, p.m, p.k, context)};
  const bool in_boxes = Boxes{g.result.out, g.result.row_stride, 0}.writable(g, 1);
  GroupArguments<Out16> arguments = group_arguments(p, g, in_boxes);
  arguments.alpha = 1, arguments.sharing = plans::kUnshared;
  arguments.schedule.stages = plans::specialized_stages(p.k, 1);
  copies.launch({}, context);
  const auto run = [&]<int M, int N, int WIDTH>() {
    using S = GroupedScaledShape<M, N, WIDTH>;
    arguments.schedule.tiles_m = int(ceil_div(p.n, int64_t{M}));
    const int64_t most = (ceil_div(p.m, int64_t{N}) + groups) * arguments.schedule.tiles_m;
    const int blocks = plans::specialized_blocks(most, 1, multiprocessors());
    Maps maps{};
    maps.x = x.map(M), maps.y = y.map(kRowsOfBox), maps.batch_x = x.batch_stride != 0;
    maps.out = in_boxes ? map_of_group_rows(g) : maps.y;
    launch<gemm_grouped_scaled_wgmma_kernel<S>>(
        "grouped_scaled_wgmma", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true},
        context)(maps, arguments, scales, g.result.out);
  };
  if (!in_boxes) return run.template operator()<192, 64, 64>();
  plans::group_columns(p.m, groups) == 64 ? run.template operator()<256, 64, 64>()
                                          : run.template operator()<256, 128, 64>();
}

}  // namespace fastgemm::FASTGEMM_TARGET
