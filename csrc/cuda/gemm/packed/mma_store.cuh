// The stores of packed_mma's sums. Contract: store_sums() adds the sums of the groups of warps, and stores a
// finished tile as C, a shared one as partial sums; gemm_packed_add_kernel adds the latter in the order of k.
#pragma once

#include "cuda/device/sync.cuh"
#include "cuda/gemm/packed/mma_shape.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <int WARPS, int PITCH>
struct alignas(16) Slabs {
  float slab[WARPS][8 * PITCH];
};

// Stores a warp's sums of 8 rows of C, from `row` on, and kRows columns. They pass through shared memory,
// because a lane has neighbours of a column.
template <class S, class T>
__device__ __forceinline__ void store_rows(const MmaArguments<T>& g, float* slab,
                                           const float (&sum)[S::kFragments][4], int row, int column) {
  const int lane = int(threadIdx.x) % 32;
  FASTGEMM_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    FASTGEMM_UNROLL
    for (int r = 0; r < 4; ++r)
      slab[(lane % 4 * 2 + r % 2) * S::kSlabPitch + 16 * f + lane / 4 + r / 2 * 8] = sum[f][r];
  }
  __syncwarp();
  with_stored_type(g.gemm.result, [&]<class Out>() {
    constexpr int N = kPer16Bytes<Out>, kAcross = S::kRows / N;
    FASTGEMM_NO_UNROLL
    for (int i = lane; i < 8 * kAcross; i += 32) {
      const int r = i / kAcross, c = i % kAcross * N;
      const int valid = row + r < g.m ? min(g.n - column - c, N) : 0;
      if (valid <= 0) continue;
      Vector16<float> x[N / 4];
      FASTGEMM_UNROLL
      for (int j = 0; j < N / 4; ++j)
        x[j] = load_vector<Vector16<float>>(slab + r * S::kSlabPitch + c + 4 * j);
      store_row_as<Out, N>(g.gemm.result, g.vectors, row + r, column + c, &x[0][0], valid);
    }
  });
  __syncwarp();
}

// Where the partial sums of a block lie: [block][which of two tiles][warp][fragment][8 rows of C][lane][4].
template <class S, class T>
__device__ __forceinline__ float* partial(const MmaArguments<T>& g, int block, bool begins_tile, int warp,
                                          int f, int j) {
  const int64_t index = ((int64_t{block} * 2 + begins_tile) * S::kGroupWarps + warp) * S::kFragments + f;
  return g.partials + (index * S::kTiles + j) * 128 + int(threadIdx.x) % 32 * 4;
}

template <int F, int N>
__device__ __forceinline__ void move_up(float (&sum)[F][N][4]) {
  FASTGEMM_UNROLL
  for (int f = 0; f < F; ++f) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4 * (N - 1); ++i) sum[f][i / 4][i % 4] = sum[f][i / 4 + 1][i % 4];
  }
}

template <class S, class T>
__device__ __forceinline__ void store_sums(const MmaArguments<T>& g, typename S::Shared& shared,
                                           float (&sum)[S::kFragments][S::kTiles][4], const Part& part) {
  const int warp = warp_index();
  const MmaPlace<S> place(part.tile, g);
  const bool whole = part.first == 0 && part.end == g.shares.steps;
  // This is a loop, so that the code of the stores exists once. Registers cannot be indexed at run time, so
  // the sums move up by one place in each iteration.
  FASTGEMM_NO_UNROLL
  for (int j = 0; j < S::kTiles; ++j, move_up(sum)) {
    const int row = place.row + 8 * j;
    if (row >= g.m) break;
    float now[S::kFragments][4];
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      FASTGEMM_UNROLL
      for (int r = 0; r < 4; ++r) now[f][r] = sum[f][0][r];
    }
    // The second group of warps passes its sums to the first one.
    float* const passed = shared.slab[warp % S::kGroupWarps + S::kGroupWarps] + int(threadIdx.x) % 32 * 4;
    __syncthreads();  // the sums passed before have been read
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f)
      if (warp >= S::kGroupWarps)
        store_vector(passed + f * 128, Vector16<float>{{now[f][0], now[f][1], now[f][2], now[f][3]}});
    __syncthreads();
    if (warp >= S::kGroupWarps) continue;
    FASTGEMM_UNROLL
    for (int f = 0; f < S::kFragments; ++f) {
      const auto other = load_vector<Vector16<float>>(passed + f * 128);
      FASTGEMM_UNROLL
      for (int r = 0; r < 4; ++r) now[f][r] += other[r];
    }
    if (whole) {
      store_rows<S>(g, shared.slab[warp], now, row, place.column + warp * S::kRows);
    } else {
      FASTGEMM_UNROLL
      for (int f = 0; f < S::kFragments; ++f)
        store_vector(partial<S>(g, int(blockIdx.x), part.first == 0, warp, f, j),
                     Vector16<float>{{now[f][0], now[f][1], now[f][2], now[f][3]}});
    }
  }
}

// Adds the partial sums of shared tiles; a block has 8 rows of C.
template <class S, class T>
__global__ void __launch_bounds__(32 * S::kGroupWarps)
    gemm_packed_add_kernel(const __grid_constant__ MmaArguments<T> g) {
  FASTGEMM_SHARED Slabs<S::kGroupWarps, S::kSlabPitch> shared;
  const int tile = int(blockIdx.x), j = int(blockIdx.y), warp = warp_index(), begin = tile * g.shares.steps;
  const int first = g.shares.block_of(begin), last = g.shares.block_of(begin + g.shares.steps - 1);
  const MmaPlace<S> place(tile, g);
  grid_dependency_wait();
  if (first == last || place.row + 8 * j >= g.m) return;
  float sum[S::kFragments][4];
  FASTGEMM_UNROLL
  for (int f = 0; f < S::kFragments; ++f) {
    // The block `first` begins the tile. The share of every later block begins with this tile.
    const float* from = partial<S>(g, first, true, warp, f, j);
    const float* next = partial<S>(g, first + 1, false, warp, f, j);
    Vector16<float> all{};
    add_vectors<4>(all, last - first + 1, 1, [&] {
      const float* const here = from;
      from = next, next += 2 * S::BM * S::kBN;
      return here;
    });
    FASTGEMM_UNROLL
    for (int r = 0; r < 4; ++r) sum[f][r] = all[r];
  }
  store_rows<S>(g, shared.slab[warp], sum, place.row + 8 * j, place.column + warp * S::kRows);
}

}  // namespace fastgemm::FASTGEMM_TARGET
