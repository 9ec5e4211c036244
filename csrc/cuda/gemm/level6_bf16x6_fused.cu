// Level 6, float32 at float32 accuracy without a pre-pass. The products of bf16x6, but the planes are cut on
// the way from shared memory to the tensor cores, where bf16x6 reads operands, writes planes and reads those:
// what counts when operands are read about once. So this row is for products with few rows or columns, for
// long k over a small C, and for batches of small matrices.
//
//   - The longer side of C is the rows of mma.m16n8k16. They stay in registers: a lane reads the floats that
//     its fragments are made of, and cuts them; no other lane needs them.
//   - The shorter side is the columns. All warps need those, so the block cuts them once, a stage ahead, into
//     fragments in shared memory.
//   - Sums of 16 products are made in the tensor cores, small ones first, and added to sums in registers,
//     rounded to nearest: a sum is truncated once a step.
//   - Operands are multiplied by 2^24 first, so that bf16 holds all bits of the smallest float32; sums that
//     are not finite are computed again by fused multiply-adds, as in bf16x6 (repair.cuh).
//   - k is split to fill the device; a second launch adds the sums in order.
#include "cuda/device/mma.cuh"
#include "cuda/gemm/level6_float_dot.cuh"
#include "cuda/gemm/level6_float_tile.cuh"
#include "cuda/gemm/levels.h"
#include "cuda/gemm/packed/scheme.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using Scheme = packed::Bf16x6;
constexpr int kPlanes = Scheme::kPlanes;
constexpr float kScale = 16777216.f, kUnscale = 1 / (kScale * kScale);  // 2^24
constexpr int kWarps = 4, kThreads = 32 * kWarps, kWarpRows = 32, kRows = kWarps * kWarpRows;
constexpr int kSteps = kTileK / 16;
constexpr int kBlocksAnSM = 2;

template <int columns_, bool rows_along_k_>
struct Tile {
  static constexpr bool kRowsAlongK = rows_along_k_;
  static constexpr int kColumns = columns_, kFragments = columns_ / 8;
  static constexpr int kPairs = (kFragments + 1) / 2, kInPair = kFragments < 2 ? 1 : 2;
  static constexpr int kStages = columns_ == 64 ? 3 : 4;
  static constexpr int kRowPitch = kLinePitch<kRows, 8>;
  static constexpr int kColumnPitch = kLinePitch < kColumns, rows_along_k_ ? 4 : 8 > ;
  static constexpr int kRowWords = kRowsAlongK ? kRows * kTileK : kTileK * kRowPitch;
  static constexpr int kColumnWords = kTileK * (kColumnPitch > kColumns ? kColumnPitch : kColumns);

  using PairPlane = Vector<uint32_t, 2 * kInPair>;  // of a lane: two registers a fragment
  struct alignas(128) Shared {
    float rows[kStages][kRowWords];                    // (kRows, kTileK)
    float columns[kStages][kColumnWords];              // (kColumns, kTileK)
    PairPlane planes[2][kSteps][kPairs][kPlanes][32];  // of the columns, by lane
  };
};

struct FusedArguments {
  Gemm<float> gemm;
  PanelSource<float> rows, columns;
  int64_t rows_batch_stride, columns_batch_stride;
  bool rows_are_columns_of_c, columns_along_k;
  unsigned column_tiles;
  int64_t split_k;       // of each blockIdx.y
  int64_t split_stride;  // elements of the result between splits
  bool split;

  __device__ __forceinline__ int64_t c_row(int64_t row, int64_t column) const {
    return rows_are_columns_of_c ? column : row;
  }
  __device__ __forceinline__ int64_t c_column(int64_t row, int64_t column) const {
    return rows_are_columns_of_c ? row : column;
  }
};

// Eight floats as registers of fragments, of each plane.
__device__ __forceinline__ void cut(const float (&x)[8], uint32_t (&planes)[kPlanes][4]) {
  uint32_t bits[8];
  FASTGEMM_UNROLL
  for (int i = 0; i < 8; ++i) bits[i] = __float_as_uint(x[i] * kScale);
  Scheme::cut(bits, planes);
}

// Rows of C that slot i (0 to 3) of a lane holds, in the warp's 32: slots 0 and 1 are the first fragment's.
template <bool rows_along_k>
__device__ __forceinline__ int row_of_slot(int i) {
  return rows_along_k ? 8 * i + lane_row() : 4 * lane_row() + i;
}

// The fragments of A of one step: 32 rows.
template <class T>
__device__ __forceinline__ void cut_rows(uint32_t (&a)[2][kPlanes][4], const float* tile, int row, int step) {
  using Four = Vector<float, 4>;
  float x[4][4];  // slot, k
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i) {
    if constexpr (T::kRowsAlongK) {
      const int at = row + row_of_slot<true>(i), k = 16 * step + k_of_slot<true>(0);
      store_vector(x[i], load_vector<Four>(tile + place_along_k(at, k)));
    } else {
      const int k = 16 * step + k_of_slot<false>(i);
      const Four four = load_vector<Four>(tile + k * T::kRowPitch + row + row_of_slot<false>(0));
      FASTGEMM_UNROLL
      for (int s = 0; s < 4; ++s) x[s][i] = four[s];
    }
  }
  FASTGEMM_UNROLL
  for (int f = 0; f < 2; ++f) {
    const float(&low)[4] = x[2 * f], (&high)[4] = x[2 * f + 1];
    const float fragment[8] = {low[0], low[1], high[0], high[1], low[2], low[3], high[2], high[3]};
    cut(fragment, a[f]);
  }
}

// The fragments of B of one stage, by all warps.
template <class T>
__device__ __forceinline__ void cut_columns(typename T::Shared& s, int stage, int buffer, bool along_k,
                                            int warp) {
  const float* tile = s.columns[stage];
  FASTGEMM_UNROLL
  for (int first = 0; first < kSteps * T::kPairs; first += kWarps) {
    const int unit = first + warp, step = unit % kSteps, pair = unit / kSteps;
    if (kSteps * T::kPairs % kWarps != 0 && unit >= kSteps * T::kPairs) return;
    float x[8] = {};
    FASTGEMM_UNROLL
    for (int i = 0; i < 4 * T::kInPair; ++i) {
      const int column = 16 * pair + 8 * (i / 4) + lane_row(),
                k = 16 * step + k_of_slot<T::kRowsAlongK>(i % 4);
      x[i] = tile[along_k ? place_along_k(column, k) : k * T::kColumnPitch + column];
    }
    uint32_t planes[kPlanes][4];
    cut(x, planes);
    FASTGEMM_UNROLL
    for (int p = 0; p < kPlanes; ++p) {
      typename T::PairPlane to;
      FASTGEMM_UNROLL
      for (int i = 0; i < 2 * T::kInPair; ++i) to[i] = planes[p][i];
      store_vector(&s.planes[buffer][step][pair][p][threadIdx.x % 32][0], to);
    }
  }
}

// A warp's sums: 32 rows of all columns of the tile.
template <class T>
struct WarpSums {
  static constexpr int kAtOnce = T::kPairs < 2 ? T::kPairs : 2;  // pairs of fragments of B
  static constexpr int kInGroup = kAtOnce * T::kInPair;
  float sum[T::kFragments][2][4] = {};

  template <packed::Product... small>
  __device__ __forceinline__ void add_step(const uint32_t (&a)[2][kPlanes][4],
                                           const typename T::PairPlane (&b)[T::kPairs][kPlanes][32],
                                           packed::Products<small...>) {
    FASTGEMM_UNROLL
    for (int first = 0; first < T::kPairs; first += kAtOnce) {
      typename T::PairPlane planes[kAtOnce][kPlanes];
      FASTGEMM_UNROLL
      for (int i = 0; i < kAtOnce * kPlanes; ++i)
        planes[i / kPlanes][i % kPlanes] =
            load_vector<typename T::PairPlane>(&b[first + i / kPlanes][i % kPlanes][threadIdx.x % 32][0]);
      float part[kInGroup][2][4] = {};
      const auto multiply = [&](int plane_a, int plane_b) {
        FASTGEMM_UNROLL
        for (int i = 0; i < kInGroup * 2; ++i) {
          const int f = i / 2;
          const auto& pair = planes[f / T::kInPair][plane_b];
          mma<BFloat16>(part[f][i % 2], a[i % 2][plane_a], pair[f % T::kInPair * 2],
                        pair[f % T::kInPair * 2 + 1]);
        }
      };
      (multiply(small.a, small.b), ...);
      multiply(0, 0);
      FASTGEMM_UNROLL
      for (int i = 0; i < kInGroup * 8; ++i)
        sum[first * T::kInPair + i / 8][i / 4 % 2][i % 4] += part[i / 8][i / 4 % 2][i % 4];
    }
  }

  __device__ __forceinline__ bool all_finite() const {
    float zero[4] = {};
    FASTGEMM_UNROLL
    for (int i = 0; i < T::kFragments * 8; ++i)
      zero[i % 4] = multiply_add(0.f, sum[i / 8][i / 4 % 2][i % 4], zero[i % 4]);
    return zero[0] + zero[1] + (zero[2] + zero[3]) == 0;
  }

  __device__ __forceinline__ void store(const FusedArguments& g, const Result<float>& to, int64_t row0,
                                        int64_t column0) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t row = row0 + row_of_slot<T::kRowsAlongK>(i);
      if (row >= g.rows.x_extent) continue;
      FASTGEMM_UNROLL
      for (int j = 0; j < T::kFragments * 2; ++j) {
        const int64_t column = column0 + j / 2 * 8 + lane_quad() * 2 + j % 2;
        if (column < g.columns.x_extent)
          to.store(g.c_row(row, column), g.c_column(row, column),
                   sum[j / 2][i / 2][i % 2 * 2 + j % 2] * kUnscale);
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksAnSM)
    gemm_bf16x6_fused_kernel(const __grid_constant__ FusedArguments g) {
  FASTGEMM_DYNAMIC_SHARED(typename T::Shared, shared);
  const int warp = warp_index();
  const int64_t row0 = int64_t(blockIdx.x / g.column_tiles) * kRows;
  const int64_t column0 = int64_t(blockIdx.x % g.column_tiles) * T::kColumns;
  const int64_t k_begin = blockIdx.y * g.split_k, k_end = min(g.gemm.k, k_begin + g.split_k);
  const int steps = int((k_end - k_begin + kTileK - 1) / kTileK);
  PanelSource<float> rows = g.rows, columns = g.columns;
  rows.data += blockIdx.z * g.rows_batch_stride, columns.data += blockIdx.z * g.columns_batch_stride;
  rows.k_extent = columns.k_extent = k_end;
  let_next_kernel_begin();

  const auto copy_rows = [&](int step) {
    if (step < steps)
      copy_float_tile<kRows, T::kRowsAlongK, T::kRowPitch, kThreads>(shared->rows[step % T::kStages], rows,
                                                                     row0, k_begin + int64_t(step) * kTileK);
  };
  const auto copy_columns = [&](int step) {
    if (step >= steps) return;
    float* to = shared->columns[step % T::kStages];
    const int64_t k = k_begin + int64_t(step) * kTileK;
    g.columns_along_k
        ? copy_float_tile<T::kColumns, true, T::kColumnPitch, kThreads>(to, columns, column0, k)
        : copy_float_tile<T::kColumns, false, T::kColumnPitch, kThreads>(to, columns, column0, k);
  };
  // Columns are a stage ahead of rows: they are cut while the stage before is multiplied.
  copy_columns(0);
  for (int i = 0; i < T::kStages - 1; ++i) {
    copy_rows(i);
    copy_columns(i + 1);
    commit_async_copies();
  }

  WarpSums<T> sums;
  const bool has_rows = row0 + warp * kWarpRows < g.rows.x_extent;
  FASTGEMM_NO_UNROLL
  for (int step = -1; step < steps; ++step) {
    wait_async_copies<T::kStages - 2>();
    __syncthreads();
    if (step >= 0) {
      copy_rows(step + T::kStages - 1);
      copy_columns(step + T::kStages);
      commit_async_copies();
    }
    if (step + 1 < steps)
      cut_columns<T>(*shared, (step + 1) % T::kStages, (step + 1) % 2, g.columns_along_k, warp);
    if (step < 0 || !has_rows) continue;
    FASTGEMM_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      uint32_t a[2][kPlanes][4];
      cut_rows<T>(a, shared->rows[step % T::kStages], warp * kWarpRows, i);
      sums.add_step(a, shared->planes[step % 2][i], Scheme::Small{});
    }
  }
  wait_async_copies<0>();
  if (!has_rows) return;
  Gemm<float> here = g.gemm.at_batch(blockIdx.z);
  here.result.out = static_cast<float*>(here.result.out) + blockIdx.y * g.split_stride;
  const int64_t warp_row = row0 + warp * kWarpRows;
  if (g.split || __all_sync(0xffffffffu, sums.all_finite()))
    return sums.store(g, here.result, warp_row, column0);
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < kWarpRows * T::kColumns; ++i) {
    const int64_t row = warp_row + i / T::kColumns, column = column0 + i % T::kColumns;
    if (row >= g.rows.x_extent || column >= g.columns.x_extent) continue;
    const int64_t c_row = g.c_row(row, column), c_column = g.c_column(row, column);
    const float sum = warp_dot(here, c_row, c_column);
    if (threadIdx.x % 32 == 0) here.result.store(c_row, c_column, sum);
  }
}

// The second launch where k is split: blocks of `width` elements of C times `groups` shares of the splits.
constexpr int kAddThreads = 256, kLeastWidth = 32;

__global__ void __launch_bounds__(kAddThreads)
    gemm_add_splits_kernel(const __grid_constant__ Gemm<float> all, const float* partials, int splits,
                           int width) {
  FASTGEMM_SHARED float parts[kAddThreads];
  wait_for_kernel_before();
  const int64_t size = all.m * all.n, stride = size * gridDim.z;  // of a split
  const int groups = kAddThreads / width, group = int(threadIdx.x) / width, x = int(threadIdx.x) % width;
  const int64_t i = int64_t(blockIdx.x) * width + x;
  const int share = (splits + groups - 1) / groups, begin = group * share, end = min(begin + share, splits);
  float sum = 0;
  if (i < size) {
    const float* p = partials + blockIdx.z * size + i + begin * stride;
    for (int s = begin; s < end; ++s, p += stride) sum += *p;
  }
  parts[threadIdx.x] = sum;
  __syncthreads();
  if (group > 0) return;
  for (int other = 1; other < groups; ++other) sum += parts[other * width + x];
  const Gemm<float> g = all.at_batch(blockIdx.z);
  const uint32_t broken = __ballot_sync(0xffffffffu, i < size && !is_finite(sum));
  for (int lane = 0; lane < 32 && broken >> lane != 0; ++lane) {
    if ((broken >> lane & 1) == 0) continue;
    const int64_t at = i - int(threadIdx.x) % 32 + lane;
    const float dot = warp_dot(g, at / g.n, at % g.n);
    if (int(threadIdx.x) % 32 == lane) sum = dot;
  }
  if (i < size) g.result.store(i / g.n, i % g.n, sum);
}

// How many ways to split k. In units of a stage of k: filling the ring takes about 3, and so do a second
// launch and the transfer of a block's sums.
int choose_ways(int64_t tiles, int64_t steps) {
  constexpr int kFill = 3, kLeastSteps = 2, kMostWaves = 8;
  const int64_t slots = int64_t{kBlocksAnSM} * multiprocessors();
  const auto time = [&](int64_t ways) {
    const int64_t waves = ceil_div(tiles * ways, slots);
    return waves * (ceil_div(steps, ways) + kFill + (ways > 1)) + (ways > 1 ? kFill : 0);
  };
  int best = 1;
  for (int ways = 2; ways * kLeastSteps <= steps && (ways - 1) * tiles < kMostWaves * slots; ++ways)
    if (time(ways) < time(best)) best = ways;
  return best;
}

template <class T>
void launch_fused(const Gemm<float>& g, FusedArguments arguments, int batch, Context& context) {
  const int64_t steps = ceil_div(g.k, kTileK);
  TileGrid tiles = tile_grid(arguments.rows.x_extent, arguments.columns.x_extent, kRows, T::kColumns, batch);
  const int64_t split_steps = ceil_div(steps, choose_ways(int64_t(tiles.grid.x) * batch, steps));
  const int ways = int(std::max<int64_t>(ceil_div(steps, std::max<int64_t>(split_steps, 1)), 1));
  arguments.column_tiles = tiles.tiles_n;
  arguments.split_k = split_steps * kTileK;
  arguments.split = ways > 1;
  tiles.grid.y = unsigned(ways);
  if (ways > 1) {
    auto* partials = static_cast<float*>(context.allocate(size_t(g.m * g.n * batch * ways) * sizeof(float)));
    arguments.split_stride = g.m * g.n * batch;
    arguments.gemm.result = {partials, g.n, g.m * g.n, nullptr, 0, 0, 0, 1, 0, false};
  }
  launch<gemm_bf16x6_fused_kernel<T>>(
      "bf16x6_fused", {tiles.grid, dim3(kThreads), sizeof(typename T::Shared)}, context)(arguments);
  if (ways == 1) return;
  int width = kAddThreads;
  while (width > kLeastWidth && kAddThreads / width * 4 < ways) width /= 2;
  launch<gemm_add_splits_kernel>(
      "add_splits",
      {dim3(unsigned(ceil_div(g.m * g.n, width)), 1, unsigned(batch)), dim3(kAddThreads), 0, true},
      context)(g, static_cast<const float*>(arguments.gemm.result.out), ways, width);
}

template <bool rows_along_k>
void launch_columns(const Gemm<float>& g, const FusedArguments& arguments, int batch, Context& context) {
  const int64_t columns = arguments.columns.x_extent;
  if (columns <= 8) return launch_fused<Tile<8, rows_along_k>>(g, arguments, batch, context);
  if (columns <= 16) return launch_fused<Tile<16, rows_along_k>>(g, arguments, batch, context);
  if (columns <= 32) return launch_fused<Tile<32, rows_along_k>>(g, arguments, batch, context);
  launch_fused<Tile<64, rows_along_k>>(g, arguments, batch, context);
}

}  // namespace

void gemm_bf16x6_fused(const GemmProblem& problem, Context& context) {
  run_float(problem, [&](const Gemm<float>& g, int batch) {
    const PanelSource<float> a{g.a.data, g.a.row_stride, g.a.col_stride, g.m, g.k, takes_vectors(g.a)};
    const PanelSource<float> b{g.b.data, g.b.col_stride, g.b.row_stride, g.n, g.k, takes_vectors(g.b)};
    const bool swap = g.n > g.m;
    FusedArguments f{};
    f.gemm = g, f.rows_are_columns_of_c = swap;
    f.rows = swap ? b : a, f.columns = swap ? a : b;
    f.rows_batch_stride = swap ? g.b.batch_stride : g.a.batch_stride;
    f.columns_batch_stride = swap ? g.a.batch_stride : g.b.batch_stride;
    f.columns_along_k = f.columns.k_stride == 1;
    f.rows.k_stride == 1 ? launch_columns<true>(g, f, batch, context)
                         : launch_columns<false>(g, f, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
