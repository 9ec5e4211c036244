// Level 6: float32 products at float32 accuracy without a pre-pass. The products are those of bf16x6. bf16x6
// reads the operands, writes their planes to memory and reads the planes; here the planes are cut on the way
// from shared memory to the tensor cores. That saves most when each operand is read about once: in products
// with few rows or columns, with a long k over a small C, and in batches of small matrices.
//
//   - The longer side of C provides the rows of wgmma, or of mma.sync on GPUs other than Hopper
//     (fast/fused_sums.cuh). They are cut in registers. The shorter side provides the columns, which are cut
//     into planes in shared memory (fast/fused_planes.cuh).
//   - The tensor cores add up 16 products at a time, small ones first. Each such sum is added to a sum in
//     registers, which rounds to nearest, so truncation happens once per step. With wgmma the next step is
//     cut while the tensor cores work.
//   - Operands are multiplied by 2^24 first, so that bf16 planes hold all bits of the smallest float32. Sums
//     that are not finite are computed again by fused multiply-adds (parts/float_dot.cuh).
//   - k is split to fill the device; a second launch adds the sums in order (parts/schedules/split_k.cuh).
//   - Where there is enough work for wgmma tiles of 256 rows, two warpgroups share the columns, which are cut
//     once for both. The sums have the same bits.
//
// Its gain over cuBLAS SGEMM is in docs/img and benchmarks/results/h100/weak_spots.json.
#include "cuda/available.h"
#include "cuda/gemm/fast/fused_sums.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/float_dot.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/parts/sides.cuh"
#include "cuda/gemm/predict/fused_plan.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace fused {
namespace {

struct Arguments {
  Gemm<float> gemm;
  PanelSource<float> rows, columns;
  int64_t rows_batch_stride, columns_batch_stride;
  bool swapped;  // the rows of C are the columns of the tile
  unsigned column_tiles;
  int64_t split_k;       // values of k for each blockIdx.y
  int64_t split_stride;  // elements of the result between splits
  bool split;
  ResultVectors vectors;
  Epilogue epilogue;  // used by kernels that fuse it
};

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
        if (e >= valid) continue;
        if constexpr (kFuses<T>)
          store_finished(g.epilogue, here.result, row, column + e, right);
        else
          here.result.store(row, column + e, right);
      }
    } else if (valid > 0) {
      if constexpr (kFuses<T>)
        store_row_finished<float, 4>(g.epilogue, here.result, g.vectors, row, column, sums.v, valid);
      else
        store_row_as<float, 4>(here.result, g.vectors, row, column, sums.v, valid);
    }
  }
}

template <class T>
__device__ __forceinline__ void multiply_tile(const Arguments& g) {
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

  // Columns are copied a stage ahead of rows, because they are cut while the stage before theirs is
  // multiplied.
  std::conditional_t<T::kByWgmma, WgmmaSums<T>, MmaSums<T>> sums;
  int slot = 0;  // holds this stage's rows; the next columns are copied to it
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
      if (T::kByWgmma) fence_async_shared();
    };
    if (stage < 0) {
      if (stage == -1) cut_next_columns();
    } else {
      sums.multiply_stage(ring.rows[slot], ring.planes[stage & 1], cut_next_columns);
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
}

template <class T>
__global__ void __launch_bounds__(T::kThreads, T::kBlocksAnSM)
    gemm_kernel(const __grid_constant__ Arguments g) {
  if constexpr (T::kByWgmma ? FASTGEMM_SM90A : FASTGEMM_PORTABLE) multiply_tile<T>(g);
}

template <class T>
TileGrid grid_of(const Arguments& arguments, int batch) {
  return tile_grid(arguments.rows.x_extent, arguments.columns.x_extent, T::kRows, T::kColumns, batch);
}

template <class T>
void launch_fused(const Gemm<float>& g, const Arguments& arguments, int batch, int chosen, Context& context) {
  static_assert(T::kByWgmma ||
                (sizeof(typename T::Shared) <= 99 << 10 &&
                 sizeof(typename T::Shared) == plans::fused_bytes({T::kRows, T::kColumns}, T::kRowsAlongK)));
  const int64_t steps = ceil_div(g.k, kTileK);
  const int64_t split_steps = std::max<int64_t>(ceil_div(steps, chosen), 1);
  const int splits = int(std::max<int64_t>(ceil_div(steps, split_steps), 1));
  const TileGrid tiles = grid_of<T>(arguments, batch);
  const dim3 grid(tiles.grid.x, unsigned(splits), tiles.grid.z);
  launch_splits<Repaired>(g, batch, splits, arguments.epilogue, context,
                          [&](const Result<float>& result, int64_t columns) {
                            Arguments f = arguments;
                            f.gemm.result = result, f.gemm.n = columns;
                            f.column_tiles = tiles.tiles_n, f.split_k = split_steps * kTileK;
                            f.split = splits > 1, f.split_stride = result.batch_stride * batch;
                            f.vectors = result_vectors(result);
                            const LaunchShape shape{grid, dim3(T::kThreads), sizeof(typename T::Shared)};
                            if constexpr (T::kRowsAlongK) {
                              if (f.epilogue.asked() && splits == 1)
                                return launch<gemm_kernel<Fusing<T>>>("bf16x6_fused", shape, context)(f);
                            }
                            launch<gemm_kernel<T>>("bf16x6_fused", shape, context)(f);
                          });
}

template <bool rows_along_k, bool by_wgmma>
void launch_columns(const Gemm<float>& g, const Arguments& arguments, int batch, Context& context) {
  const plans::FusedPlan plan = plans::plan_fused(batch, arguments.rows.x_extent, arguments.columns.x_extent,
                                                  g.k, rows_along_k, cuda::gpu_here());
  const auto run = [&]<class T>() { launch_fused<T>(g, arguments, batch, plan.splits.count, context); };
  if (plan.tile.columns == 16) return run.template operator()<Tile<16, rows_along_k, by_wgmma>>();
  if (plan.tile.columns == 32) return run.template operator()<Tile<32, rows_along_k, by_wgmma>>();
  if constexpr (by_wgmma) {
    if (plan.tile.tall()) return run.template operator()<Tile<64, rows_along_k, by_wgmma, 2>>();
  }
  run.template operator()<Tile<64, rows_along_k, by_wgmma>>();
}

template <bool by_wgmma>
void launch_rows(const Gemm<float>& g, const Arguments& arguments, int batch, Context& context) {
  arguments.rows.k_stride == 1 ? launch_columns<true, by_wgmma>(g, arguments, batch, context)
                               : launch_columns<false, by_wgmma>(g, arguments, batch, context);
}

}  // namespace
}  // namespace fused

void gemm_bf16x6_fused(const GemmProblem& problem, Context& context) {
  const Epilogue epilogue = by_rows(problem).epilogue;
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
    f.epilogue = epilogue;
    cuda::has_wgmma() ? fused::launch_rows<true>(g, f, batch, context)
                      : fused::launch_rows<false>(g, f, batch, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
