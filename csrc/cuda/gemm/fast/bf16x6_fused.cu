// Level 6, float32 at float32 accuracy without a pre-pass. The products are those of bf16x6, but the planes
// are cut on the way from shared memory to the tensor cores, where bf16x6 reads operands, writes planes and
// reads those. That counts when operands are read about once: so this row is for products with few rows or
// columns, for long k over a small C, and for batches of small matrices.
//
//   - The longer side of C is the rows of wgmma, which are cut in registers; the shorter one is the columns,
//     which are cut into planes in shared memory (fast/fused_planes.cuh).
//   - Sums of 16 products are made in the tensor cores, small ones first, and added to sums in registers,
//     rounded to nearest: a sum is truncated once a step. Meanwhile the next step is cut.
//   - Operands are multiplied by 2^24 first, so that bf16 holds all bits of the smallest float32; sums that
//     are not finite are computed again by fused multiply-adds (parts/float_dot.cuh).
//   - k is split to fill the device; a second launch adds the sums in order (parts/split_k.cuh).
//   - Where there is work enough for tiles of 256 rows, two warpgroups share the columns, which are cut once
//     for both; the sums are the same.
//
// What it gains over cuBLAS SGEMM is in docs/img and benchmarks/results/h200/weak_spots.json.
#include "cuda/gemm/fast/fused_planes.cuh"
#include "cuda/gemm/parts/float_dot.cuh"
#include "cuda/gemm/parts/launch_splits.cuh"
#include "cuda/gemm/parts/sides.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace fused {
namespace {

struct Arguments {
  Gemm<float> gemm;
  PanelSource<float> rows, columns;
  int64_t rows_batch_stride, columns_batch_stride;
  bool swapped;  // rows of C are columns of the tile
  unsigned column_tiles;
  int64_t split_k;       // values of k of each blockIdx.y
  int64_t split_stride;  // elements of the result between splits
  bool split;
  ResultVectors vectors;
};

// A thread's sums: of 64 rows twice, for all columns of the tile.
template <class T>
class Sums {
 public:
  // Begins the products of a step, small ones first.
  __device__ __forceinline__ void begin(int half, const Fragments& a,
                                        const uint32_t (&b)[kPlanes][T::kPlaneWords]) {
    begin(part_[half], a[half], b, Scheme::Small{});
  }
  // Adds a step's products to the sums. `pending` steps have begun since.
  template <int pending>
  __device__ __forceinline__ void finish(int half) {
    wgmma_wait<pending>(part_[half]);
    FASTGEMM_UNROLL
    for (int i = 0; i < T::kSums; ++i) sum_[half][i] += part_[half][i];
  }

  // Writes the sums to the slab, in which rows and columns of the tile are that many words apart.
  __device__ __forceinline__ void store(float* slab, int row_pitch, int column_pitch) const {
    const int row = int(threadIdx.x) / 32 * 32;
    const auto store_columns = [&](auto&& store_rows) {
      FASTGEMM_UNROLL
      for (int j = 0; j < T::kFragments * 2; ++j) {
        Vector<float, 4> rows;
        FASTGEMM_UNROLL
        for (int i = 0; i < 4; ++i) rows[i] = sum_[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2] * kUnscale;
        store_rows(slab + (j / 2 * 8 + lane_quad() * 2 + j % 2) * column_pitch, rows);
      }
    };
    if (!T::kRowsAlongK && row_pitch == 1) {  // four neighbours
      store_columns([&](float* to, const Vector<float, 4>& rows) {
        store_vector_whole_shared(to + row + row_of_slot<T::kRowsAlongK>(0), rows);
      });
    } else {
      store_columns([&](float* to, const Vector<float, 4>& rows) {
        FASTGEMM_UNROLL
        for (int i = 0; i < 4; ++i) to[(row + row_of_slot<T::kRowsAlongK>(i)) * row_pitch] = rows[i];
      });
    }
  }

 private:
  template <planes::Product... small>
  __device__ __forceinline__ static void begin(float (&part)[T::kSums], const uint32_t (&a)[kPlanes][4],
                                               const uint32_t (&b)[kPlanes][T::kPlaneWords],
                                               planes::Products<small...>) {
    const auto columns = matrix_descriptor(b, Swizzle::none, T::kHalfWords * 4, 128);
    const auto multiply = [&](planes::Product p, bool accumulate) {
      wgmma<BFloat16>(part, a[p.a], columns.at(p.b * T::kPlaneWords * 4), accumulate);
    };
    wgmma_fence(part);
    bool accumulate = false;
    ((multiply(small, accumulate), accumulate = true), ...);
    multiply({0, 0}, true);
    wgmma_commit();
  }

  float sum_[kHalves][T::kSums] = {}, part_[kHalves][T::kSums];
};

// Multiplies a stage's two steps. While the tensor cores work, the rows of the second step are cut, and then
// the columns of the next stage.
template <class T, class Cut>
__device__ __forceinline__ void multiply_stage(Sums<T>& sums, const float* rows,
                                               const uint32_t (&columns)[kSteps][kPlanes][T::kPlaneWords],
                                               Cut&& cut_next_columns) {
  Fragments first, second;
  cut_rows<T>(first, rows, 0);
  sums.begin(0, first, columns[0]);
  sums.begin(1, first, columns[0]);
  cut_rows<T>(second, rows, 1);
  sums.template finish<1>(0);
  sums.begin(0, second, columns[1]);
  sums.template finish<1>(1);
  sums.begin(1, second, columns[1]);
  cut_next_columns();
  sums.template finish<1>(0);
  sums.template finish<0>(1);
}

// Stores the slab to C, four elements of a row at a time.
template <class T>
__device__ __forceinline__ void store_slab(const Arguments& g, const Gemm<float>& here, const float* slab,
                                           int64_t row0, int64_t column0) {
  const int length = g.swapped ? T::kRows : T::kColumns;
  const int pitch = g.swapped ? T::kSlabPitchAlongRows : T::kSlabPitchAlongColumns;
  const int64_t c_row0 = g.swapped ? column0 : row0, c_column0 = g.swapped ? row0 : column0;
  FASTGEMM_NO_UNROLL
  for (int i = int(threadIdx.x); i < T::kRows * T::kColumns / 4; i += T::kThreads) {
    const int line = i / (length / 4), x = i % (length / 4) * 4;
    const int64_t row = c_row0 + line, column = c_column0 + x;
    const int valid = row < here.m ? inside(here.n, column, 4) : 0;
    auto sums = load_vector<Vector<float, 4>>(slab + line * pitch + x);
    const bool finite = is_finite(sums[0]) && is_finite(sums[1]) && is_finite(sums[2]) && is_finite(sums[3]);
    if (!g.split && __any_sync(0xffffffffu, !finite)) {
      FASTGEMM_NO_UNROLL
      for (int e = 0; e < 4; ++e) {
        const float sum = e < 2 ? e < 1 ? sums[0] : sums[1] : e < 3 ? sums[2] : sums[3];
        const float right = repaired(here, sum, e < valid, [&](int lane) {
          const int j = i - int(threadIdx.x) % 32 + lane;
          return Element{c_row0 + j / (length / 4), c_column0 + j % (length / 4) * 4 + e};
        });
        if (e < valid) here.result.store(row, column + e, right);
      }
    } else if (valid > 0) {
      store_row_as<float, 4>(here.result, g.vectors, row, column, sums.v, valid);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksAnSM)
    gemm_kernel(const __grid_constant__ Arguments g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(typename T::Shared, shared);
  typename T::Ring& ring = shared->ring;
  const int64_t row0 = int64_t(blockIdx.x / g.column_tiles) * T::kRows;
  const int64_t column0 = int64_t(blockIdx.x % g.column_tiles) * T::kColumns;
  const int64_t k_begin = blockIdx.y * g.split_k, k_end = min(g.gemm.k, k_begin + g.split_k);
  const int steps = int((k_end - k_begin + kTileK - 1) / kTileK);
  PanelSource<float> from_rows = g.rows, from_columns = g.columns;
  from_rows.data += blockIdx.z * g.rows_batch_stride, from_rows.k_extent = k_end;
  from_columns.data += blockIdx.z * g.columns_batch_stride, from_columns.k_extent = k_end;
  const bool columns_along_k = from_columns.k_stride == 1;
  RawTileCopy<float, T::kRows, T::kRowPitch, T::kThreads> rows(from_rows, row0, k_begin);
  RawTileCopy<float, T::kColumns, T::kColumnPitch, T::kThreads> columns(from_columns, column0, k_begin);
  launch_dependents();

  // Columns are a stage ahead of rows: they are cut while the stage before is multiplied.
  Sums<T> sums;
  int slot = 0;  // the place in the ring of this stage, which the columns to come take as well
  FASTGEMM_NO_UNROLL
  for (int stage = -T::kStages; stage < steps; ++stage) {
    const int next_slot = slot + 1 == T::kStages ? 0 : slot + 1;
    const int before = slot == 0 ? T::kStages - 1 : slot - 1;
    wait_async_copies<T::kStages - 2>();
    __syncthreads();
    if (stage > -T::kStages) rows.copy(ring.rows[before]);
    columns.copy(ring.columns[slot]);
    commit_async_copies();
    const auto cut_next_columns = [&] {
      cut_columns<T>(ring.planes[(stage + 1) & 1], ring.columns[next_slot], columns_along_k);
      fence_async_shared();
    };
    if (stage < 0) {
      if (stage == -1) cut_next_columns();
    } else {
      multiply_stage(sums, ring.rows[slot], ring.planes[stage & 1], cut_next_columns);
    }
    slot = next_slot;
  }
  wait_async_copies<0>();
  __syncthreads();
  sums.store(shared->slab, g.swapped ? 1 : T::kSlabPitchAlongColumns, g.swapped ? T::kSlabPitchAlongRows : 1);
  __syncthreads();
  Gemm<float> here = g.gemm.at_batch(blockIdx.z);
  here.result.out = static_cast<float*>(here.result.out) + blockIdx.y * g.split_stride;
  store_slab<T>(g, here, shared->slab, row0, column0);
#endif
}

// How many ways to split k, and the time that takes. Its unit is a multiprocessor's time for a stage of
// 128 x 64 tiles: filling the ring takes about 3 of those, and so do a second launch and the transfer of a
// block's sums.
struct Ways {
  int count;
  double time;
};

template <class T>
TileGrid grid_of(const Arguments& arguments, int batch) {
  return tile_grid(arguments.rows.x_extent, arguments.columns.x_extent, T::kRows, T::kColumns, batch);
}

template <class T>
Ways choose_ways(const Arguments& arguments, int batch) {
  // Tall tiles cut the columns once for twice as many rows, but a multiprocessor has only one, and nothing to
  // do while its ring is filled: they gain where k is long.
  constexpr double kStage = T::kWarps == 8 ? 0.92 : 1, kFill = T::kWarps == 8 ? 3.3 : 3;
  constexpr int kLeastSteps = 2, kMostWaves = 8;
  const int64_t tiles = int64_t(grid_of<T>(arguments, batch).grid.x) * batch;
  const int64_t steps = ceil_div(arguments.gemm.k, kTileK);
  const int64_t slots = int64_t{T::kBlocksAnSM} * multiprocessors();
  const auto time = [&](int64_t ways) {
    const int64_t waves = ceil_div(tiles * ways, slots);
    return double(waves) * (kStage * double(ceil_div(steps, ways)) + kFill + (ways > 1)) +
           (ways > 1 ? kFill : 0);
  };
  Ways best{1, time(1)};
  for (int ways = 2; ways * kLeastSteps <= steps && (ways - 1) * tiles < kMostWaves * slots; ++ways)
    if (time(ways) < best.time) best = {ways, time(ways)};
  return best;
}

template <class T>
void launch_fused(const Gemm<float>& g, const Arguments& arguments, int batch, const Ways& chosen,
                  Context& context) {
  const int64_t steps = ceil_div(g.k, kTileK);
  const int64_t split_steps = std::max<int64_t>(ceil_div(steps, chosen.count), 1);
  const int ways = int(std::max<int64_t>(ceil_div(steps, split_steps), 1));
  const TileGrid tiles = grid_of<T>(arguments, batch);
  const dim3 grid(tiles.grid.x, unsigned(ways), tiles.grid.z);
  launch_splits<Repaired>(g, batch, ways, context, [&](const Result<float>& result, int64_t columns) {
    Arguments f = arguments;
    f.gemm.result = result, f.gemm.n = columns;
    f.column_tiles = tiles.tiles_n, f.split_k = split_steps * kTileK;
    f.split = ways > 1, f.split_stride = result.batch_stride * batch;
    f.vectors = result_vectors(result);
    launch<gemm_kernel<T>>("bf16x6_fused", {grid, dim3(T::kThreads), sizeof(typename T::Shared)}, context)(f);
  });
}

template <class T>
void launch_fused(const Gemm<float>& g, const Arguments& arguments, int batch, Context& context) {
  launch_fused<T>(g, arguments, batch, choose_ways<T>(arguments, batch), context);
}

template <bool rows_along_k>
void launch_columns(const Gemm<float>& g, const Arguments& arguments, int batch, Context& context) {
  const int64_t columns = arguments.columns.x_extent;
  if (columns <= 16) return launch_fused<Tile<16, rows_along_k>>(g, arguments, batch, context);
  if (columns <= 32) return launch_fused<Tile<32, rows_along_k>>(g, arguments, batch, context);
  using Wide = Tile<64, rows_along_k>;
  using Tall = Tile<64, rows_along_k, 2>;
  const Ways wide = choose_ways<Wide>(arguments, batch);
  // Narrower tiles where wide ones would leave half of each multiprocessor idle.
  const bool leaves_room = int64_t(grid_of<Wide>(arguments, batch).grid.x) * batch <= multiprocessors();
  if (leaves_room && wide.count == 1)
    return launch_fused<Tile<32, rows_along_k>>(g, arguments, batch, context);
  const Ways tall = choose_ways<Tall>(arguments, batch);
  tall.time < wide.time ? launch_fused<Tall>(g, arguments, batch, tall, context)
                        : launch_fused<Wide>(g, arguments, batch, wide, context);
}

}  // namespace
}  // namespace fused

void gemm_bf16x6_fused(const GemmProblem& problem, Context& context) {
  run_gemm<float>(problem, context, [&](const Gemm<float>& g, int batch) {
    const auto source = [](const Side<float>& s) {
      return PanelSource<float>{
          s.data, s.side_stride, s.k_stride,
          s.side, s.k,           takes_vectors(s.data, 4, s.side_stride, s.k_stride, s.batch_stride)};
    };
    const Sides<float> sides(g, batch);
    fused::Arguments f{g,
                       source(sides.wide),
                       source(sides.narrow),
                       sides.wide.batch_stride,
                       sides.narrow.batch_stride,
                       sides.swapped};
    f.rows.k_stride == 1 ? fused::launch_columns<true>(g, f, batch, context)
                         : fused::launch_columns<false>(g, f, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
