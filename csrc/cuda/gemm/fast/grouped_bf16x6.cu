// Level 6 on Hopper for float32 products of groups of rows, such as the experts of a mixture, by tensor
// cores. What changes from grouped_wgmma:
//   - both operands are cut into three planes of bfloat16 first (parts/planes/group_planes.cuh), and six
//     products of planes are added, as in bf16x6;
//   - the tensor cores keep 25 bits of a sum and cut the rest off. So they sum only 64 values of k at a time,
//     and these sums are added to float32 sums in registers (fp8/promoted.cuh). The error is smaller than
//     that of a chain of fused multiply-adds;
//   - a sum that is not finite is computed again from the operands, because the planes of an infinity are no
//     numbers. The second kernel reads a flag for each 16 columns of a tile, and ends if none is set. A
//     result full of NaN takes much longer;
//   - large weights are cut and multiplied some columns at a time: as many columns as have planes of at most
//     2 GB, but at least 256.
//
// Numbers below 2^-110 keep fewer bits, because the smallest bfloat16 number is larger than their last plane.
#include "cuda/gemm/fp8/promoted_groups.cuh"
#include "cuda/gemm/parts/planes/group_planes.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

// Tiles of C^T: M columns of C, N rows of a group. With four warpgroups that multiply, no registers are left
// for threads that store rows by themselves.
template <int M, int N, int WIDTH>
struct PlanesShape : RoomShape<N, (M + N) * 128, GroupTiles, M> {
  static constexpr Scaling kScaling = Scaling::sums;
  static constexpr int kWidth = WIDTH;
  static constexpr bool kAddsC = false, kReadsXOnce = false, kSkipsHalves = WIDTH < N;
  static constexpr bool kOnlyBoxes = M == 256, kIssuesAhead = false;
  static constexpr int kConsumerRegisters = kOnlyBoxes ? 112 : 136,
                       kProducerRegisters = kOnlyBoxes ? 32 : 104;
};

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    gemm_grouped_bf16x6_kernel(const __grid_constant__ Maps maps,
                               const __grid_constant__ GroupArguments<float> g, float* out, uint32_t* flags) {
#if FASTGEMM_SM90A
  using Source = PromotedSource<BFloat16, S::kM, S::kN, Scaling::sums, 128>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const auto multiply = [&]<class Out>(const auto& schedule, int warp) {
    multiply_whole_tiles<Source, Out>(
        *shared, maps, schedule, warp, [](const Part&) {},
        [&](auto& sum, const Part& part) {
          if (g.bias != nullptr) {
            const GroupPlace at = schedule.within_group(part.tile);
            add_bias<float>(sum, g, at.batch, at.row + 16 * warp_index() + fresh_lane() / 4, 0);
          }
          float any = 0;
          FASTGEMM_UNROLL
          for (int i = 0; i < S::kSums; ++i) any += sum[i] - sum[i];       // NaN unless all are finite
          const int strip = part.tile * S::kConsumerWarps + warp_index();  // all lanes compute it
          if (any != 0) flags[strip] = 1;
        });
  };
  const auto schedule = [&] { return PlaneGroups<S, float>{{g, shared->tail}}; };
  const auto with_result = [](auto&& body) { body.template operator()<float>(); };
  run_groups<S, Source>(*shared, maps, g, out, schedule, with_result, multiply);
#endif
}

struct RepairArguments {
  GroupArguments<float> groups;
  ConstMatrix a, b;
  float* out;
  const uint32_t* flags;
  int k;
};

// The terms first, first + step, ... of one element of C, without its bias. `row` counts the rows of all
// groups.
__device__ __forceinline__ float sum_again(const RepairArguments& g, int group, int row, int column,
                                           int first, int step) {
  const float* const a = static_cast<const float*>(g.a.data) + row * g.a.row_stride;
  const float* const b =
      static_cast<const float*>(g.b.data) + group * g.b.batch_stride + column * g.b.col_stride;
  float sum = 0;
  for (int k = first; k < g.k; k += step) sum = fmaf(a[k * g.a.col_stride], b[k * g.b.row_stride], sum);
  return sum;
}
__device__ __forceinline__ void store_again(const RepairArguments& g, int group, int row, int column,
                                            float sum) {
  const auto& of = g.groups;
  if (of.bias != nullptr)
    sum += static_cast<const float*>(of.bias)[group * of.bias_group_stride + column * of.bias_stride];
  g.out[row * of.rows.row_stride + column] = sum;
}

// Computes the numbers that are not finite again, in the strips of 16 columns of C that have a flag. A warp
// looks at 32 numbers at a time. If only a few of them are not finite, all lanes compute one number after
// another. Otherwise each lane computes one.
template <class S>
__global__ void __launch_bounds__(256) repair_groups_kernel(const __grid_constant__ RepairArguments g) {
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kFew = 4;
  FASTGEMM_SHARED GroupTiles tiles;
  using Schedule = RowGroups<S, float>;
  Schedule::plan_work(tiles, g.groups);
  __syncthreads();
  const Schedule schedule{g.groups, tiles};
  const int lane = fresh_lane(), strips = tiles.work.whole_tiles * S::kConsumerWarps;
  for (int strip = int(blockIdx.x) * 8 + warp_index(); strip < strips; strip += int(gridDim.x) * 8) {
    if (g.flags[strip] == 0) continue;
    const GroupPlace at = schedule.within_group(strip / S::kConsumerWarps);
    const GroupRange range = g.groups.range(at.batch);
    const int column0 = at.row + 16 * (strip % S::kConsumerWarps), row0 = range.begin + at.column;
    const int rows = min(range.end - row0, S::kN);
    for (int first = 0; first < rows * 16; first += 32) {
      const int i = first + lane, column = column0 + i % 16;
      const float* const at_c = g.out + (row0 + i / 16) * g.groups.rows.row_stride + column;
      const bool is_wrong = i < rows * 16 && column < g.groups.rows.n && !(*at_c - *at_c == 0);
      const unsigned wrong = __ballot_sync(kAll, is_wrong);
      if (__popc(wrong) > kFew) {
        if (is_wrong) {
          const int row = row0 + i / 16;
          store_again(g, at.batch, row, column, sum_again(g, at.batch, row, column, 0, 1));
        }
      } else {
        for (unsigned left = wrong; left != 0; left &= left - 1) {
          const int j = first + __ffs(int(left)) - 1, row = row0 + j / 16, its_column = column0 + j % 16;
          float sum = sum_again(g, at.batch, row, its_column, lane, 32);
          FASTGEMM_UNROLL
          for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAll, sum, step);
          if (lane == 0) store_again(g, at.batch, row, its_column, sum);
        }
      }
      __syncwarp();
    }
  }
}

// The product of some columns of C.
template <class S>
void launch_columns(const GroupPlanes& x, const GroupPlanes& y, const GemmProblem& p, Context& context) {
  const Gemm<float> g = gemm_of<float>(p);
  const bool in_boxes = Boxes{g.result.out, g.result.row_stride, 0}.writable(g, 1);
  GroupArguments<float> arguments = group_arguments(p, g, in_boxes);
  arguments.sharing = plans::kUnshared;
  arguments.schedule.tiles_m = int(ceil_div(p.n, int64_t{S::kM}));
  arguments.schedule.stages = int(ceil_div(p.k, int64_t{64})) * kPlanePairs;
  const int64_t most = (ceil_div(p.m, int64_t{S::kN}) + p.batch) * arguments.schedule.tiles_m;
  const size_t strips = size_t(most) * S::kConsumerWarps;
  auto* const flags = static_cast<uint32_t*>(context.allocate(strips * sizeof(uint32_t)));
  RowCopies copies;
  copies.launch({flags, strips}, context);
  const BoxOperand<int8_t> of_x = x.matrices(), of_y = y.below_each_other();
  Maps maps{};
  maps.x = of_x.map(S::kM), maps.y = of_y.map(kRowsOfBox), maps.batch_x = 1;
  maps.out = in_boxes ? map_of_group_rows(g) : maps.y;
  const int blocks = plans::specialized_blocks(most, 1, multiprocessors());
  auto* const out = static_cast<float*>(g.result.out);
  launch<gemm_grouped_bf16x6_kernel<S>>(
      "grouped_bf16x6", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared), true},
      context)(maps, arguments, out, flags);
  launch<repair_groups_kernel<S>>("repair_groups", {dim3(unsigned(blocks)), dim3(256)},
                                  context)(RepairArguments{arguments, p.a, p.b, out, flags, int(p.k)});
}

// Columns first .. first + count of C.
GemmProblem columns_of(const GemmProblem& p, int64_t first, int64_t count) {
  GemmProblem q = p;
  q.n = count;
  q.b.data = static_cast<const float*>(p.b.data) + first * p.b.col_stride;
  q.out.data = static_cast<float*>(p.out.data) + first * p.out.col_stride;
  if (p.beta != 0) q.c.data = static_cast<const float*>(p.c.data) + first * p.c.col_stride;
  return q;
}

}  // namespace

void gemm_grouped_bf16x6(const GemmProblem& p, Context& context) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const int size = int(p.m), groups = int(p.batch);
  const auto planes = [&](int64_t rows, int64_t batch) {
    return static_cast<BFloat16*>(context.allocate(size_t(GroupPlanes::bytes(rows, p.k, batch))));
  };
  const GroupPlanes y = cut_planes(p.a, p.m, p.k, 1, planes(p.m, 1), nullptr, size, context);
  const int64_t of_tile = GroupPlanes::bytes(256, p.k, groups);
  const int64_t at_once = std::max<int64_t>(kMostScratch / of_tile, 1) * 256, most = std::min(p.n, at_once);
  BFloat16* const memory = planes(most, groups);
  for (int64_t first = 0; first < p.n; first += most) {
    const GemmProblem q = columns_of(p, first, std::min(most, p.n - first));
    const GroupPlanes x =
        cut_planes(q.b.transposed(), q.n, q.k, groups, memory, p.groups.ends, size, context);
    const Gemm<float> g = gemm_of<float>(q);
    const bool in_boxes = Boxes{g.result.out, g.result.row_stride, 0}.writable(g, 1);
    in_boxes ? launch_columns<PlanesShape<256, 128, 64>>(x, y, q, context)
             : launch_columns<PlanesShape<192, 64, 64>>(x, y, q, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
