// The epilogue of a product by planes: unscales a consumer's sums, checks that they are finite and stores
// them. It uses plain stores, by which four lanes write 64 bytes of a row: staging boxes for the TMA would
// take the place of slots of the rings.
//
//   a lane's sums of a strip (16, kN):  column  0 1   2 3   4 5   6 7   8 9  ...
//                               row lane / 4    l0    l1    l2    l3    l0         registers 0, 1; 4, 5; ...
//                               row + 8         l0    l1    l2    l3    l0         registers 2, 3; 6, 7; ...
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/planes/cut.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"
#include "cuda/gemm/parts/planes/shape.cuh"
#include "cuda/gemm/parts/schedules/chunks.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// A strip is 16 rows of a tile, (16, kN); its number is tile * kStrips + strip. With wgmma a warp has a whole
// strip, with mma.sync a part of several (warp_kernel.cuh). `row` and `column` below say where the warp's
// part begins in the tile.
inline constexpr int kStripRows = 16;

// The factors by which sums are multiplied where rows or columns were scaled.
struct Unscale {
  const float *a, *b;                   // [matrix][row]
  const uint32_t *scaled_a, *scaled_b;  // [matrix][row / kRowGroup]
};

// The stages of k that a launch sums.
struct Segment {
  int first, all;
  bool is_last;
};

// The epilogue that is applied to stored sums (finish_stored). `result` is that of the whole problem, with
// its c.
struct Finishing {
  Epilogue epilogue;
  Result<float> result;
};
struct NoFinishing {};

template <class S>
struct Arguments {
  Result<typename S::Operand> result;
  int m, n;
  int neighbours;              // neighbouring elements of C that one store can write: 4, 2 or 1
  int batch_a, batch_b;        // 0 if the batch shares the operand
  const unsigned char *a, *b;  // images
  ChunkSchedule<typename S::Acc> schedule;
  Unscale unscale;
  Segment segment;
  [[no_unique_address]] typename S::Scheme::Tiles tiles;
  int chunk;             // stages that the tensor cores sum before a promotion (multiply.cuh)
  uint32_t* progress;    // [block] (pace.cuh)
  uint32_t* unfinished;  // [strip]: 1 where sums are not finite and C was not written
  [[no_unique_address]] std::conditional_t<kFuses<typename S::Scheme>, Finishing, NoFinishing> finishing;
};

// A lane has columns 2 (lane % 4) + 8 i + {0, 1} of rows lane / 4 and lane / 4 + 8 of its warp's strip.

// The number of a matrix's first tile among the tiles of an operand. `matrix` is 0 if the batch shares the
// operand.
template <class S>
__device__ __forceinline__ int64_t first_tile_a(const Arguments<S>& g, int matrix) {
  if constexpr (S::kLower)
    return int64_t(matrix) * ((g.m + S::kM - 1) / S::kM);
  else
    return int64_t(matrix) * g.schedule.tiles_m;
}
template <class S>
__device__ __forceinline__ int64_t first_tile_b(const Arguments<S>& g, int matrix) {
  if constexpr (S::kLower)
    return int64_t(matrix) * ((g.n + S::kN - 1) / S::kN);
  else
    return int64_t(matrix) * g.schedule.tiles_n;
}

// Whether a tile of the schedule lies outside the triangle: the triangle's squares may reach over the matrix,
// and have tiles above the diagonal.
template <class S>
__device__ __forceinline__ bool lies_outside(const Arguments<S>& g, const TileOrigin<S>& tile) {
  return S::kLower && (tile.row >= g.m || tile.column >= g.n || tile.column >= tile.row + S::kM);
}

// The place of a warp's sums in the arrays of Unscale.
template <class S>
struct ScalePlace {
  int64_t row, column;

  __device__ __forceinline__ ScalePlace(const Arguments<S>& g, const TileOrigin<S>& tile, int row, int column)
      : row(first_tile_a(g, tile.batch * g.batch_a) * S::kM + tile.row + row),
        column(first_tile_b(g, tile.batch * g.batch_b) * S::kN + tile.column + column) {}
};

// Whether the lane's share of these rows and columns was scaled. If registers allow, it is loaded before the
// sums are computed, which hides the load's latency.
template <int rows, int columns, class S>
__device__ __forceinline__ uint32_t load_scaled(const Arguments<S>& g, int tile, int row, int column) {
  constexpr int kGroupsB = columns / kRowGroup, kGroupsA = rows / kRowGroup;
  static_assert(kGroupsA + kGroupsB <= 32);
  const ScalePlace<S> at(g, TileOrigin<S>(tile, g.schedule), row, column);
  const int lane = int(threadIdx.x) % 32;
  if (lane < kGroupsB) return g.unscale.scaled_b[at.column / kRowGroup + lane];
  if (lane < kGroupsB + kGroupsA) return g.unscale.scaled_a[at.row / kRowGroup + lane - kGroupsB];
  return 0;
}

template <class S, int R>
__device__ __forceinline__ void unscale_strip(const Arguments<S>& g, float (&sum)[R],
                                              const TileOrigin<S>& tile, int row, int column) {
  const ScalePlace<S> at(g, tile, row, column);
  const int lane = fresh_lane();
  const float* const rows = g.unscale.a + at.row + lane / 4;
  const float* const columns = g.unscale.b + at.column + lane % 4 * 2;
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) sum[i] = sum[i] * rows[i / 2 % 2 * 8] * columns[i / 4 * 8 + i % 2];
}

template <int R>
__device__ __forceinline__ bool all_finite(const float (&sum)[R]) {
  float zero[4] = {};
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) zero[i % 4] = multiply_add(0.f, sum[i], zero[i % 4]);
  return zero[0] + zero[1] + (zero[2] + zero[3]) == 0;
}

// Each lane stores four neighbouring elements, so that four lanes write 64 bytes of a row. In every two
// groups of 8 columns, even lanes store the first group and odd lanes the second; neighbouring lanes exchange
// the elements that they do not store. The lane's sums are sum(0) to sum(count - 1).
template <int count, class Out, class T, class Sum>
__device__ __forceinline__ void store_fours(const Result<T>& result, const Sum& sum, Out* to) {
  const int lane = fresh_lane();
  const bool odd = lane % 2 != 0;
  to += lane % 4 / 2 * 4 + (odd ? 8 : 0);
  FASTGEMM_UNROLL
  for (int i = 0; i < count; i += 8) {
    __syncwarp();  // else the compiler does all exchanges first, which takes too many registers
    FASTGEMM_UNROLL
    for (int j = i; j < i + 4; j += 2) {
      Accumulator<Out> own[2], other[2];
      FASTGEMM_UNROLL
      for (int e = 0; e < 2; ++e) {
        const auto first = Accumulator<Out>(sum(j + e)), second = Accumulator<Out>(sum(j + e + 4));
        const auto alpha = Accumulator<Out>(result.alpha);
        own[e] = alpha * (odd ? second : first);
        other[e] = alpha * __shfl_xor_sync(0xffffffffu, odd ? first : second, 1);
      }
      store_vector(
          to + j % 4 / 2 * 8 * result.row_stride + i / 4 * 8,
          Vector<Out, 4>{{round_to<Out>(odd ? other[0] : own[0]), round_to<Out>(odd ? other[1] : own[1]),
                          round_to<Out>(odd ? own[0] : other[0]), round_to<Out>(odd ? own[1] : other[1])}});
    }
  }
}

// Stores the sums of a strip, sum(0) to sum(count - 1) of a lane, as elements of type Out.
template <class Out, int count, class S, class Sum>
__device__ __forceinline__ void store_sums(const Arguments<S>& g, const Sum& sum, const TileOrigin<S>& tile,
                                           int first_row, int first_column) {
  auto result = g.result;
  result.out = static_cast<Out*>(result.out) + tile.batch * result.batch_stride;
  result.c = static_cast<const Out*>(result.c) + tile.batch * result.c_batch_stride;
  const int lane = fresh_lane();
  const int row = tile.row + first_row + lane / 4, column = tile.column + first_column + lane % 4 * 2;
  const bool inside = tile.row + S::kM <= g.m && tile.column + S::kN <= g.n;
  if (g.neighbours > 1 && inside && result.beta == 0) {
    Out* const to = static_cast<Out*>(result.out) + row * result.row_stride + tile.column + first_column;
    if constexpr (sizeof(Out) == 4) {
      if (g.neighbours == 4) return store_fours<count>(result, sum, to);
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < count; i += 2)
      store_vector(
          to + i / 2 % 2 * 8 * result.row_stride + lane % 4 * 2 + i / 4 * 8,
          Vector<Out, 2>{{round_to<Out>(result.alpha * sum(i)), round_to<Out>(result.alpha * sum(i + 1))}});
    return;
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < count; ++i) {
    const int at_row = row + i / 2 % 2 * 8, at_column = column + i / 4 * 8 + i % 2;
    if (at_row < g.m && at_column < g.n) result.template store_as<Out>(at_row, at_column, sum(i));
  }
}

// Applies the epilogue to the (kStripRows, columns) elements that store_strip() has stored.
template <class S>
__device__ __forceinline__ void finish_stored_strip(const Arguments<S>& g, const TileOrigin<S>& tile, int row,
                                                    int column, int columns) {
  if constexpr (kFuses<typename S::Scheme>) {
    if (!g.segment.is_last) return;
    Result<float> result = g.finishing.result;
    result.out = static_cast<float*>(result.out) + tile.batch * result.batch_stride;
    result.c = static_cast<const float*>(result.c) + tile.batch * result.c_batch_stride;
    const int row0 = tile.row + row, column0 = tile.column + column;
    finish_stored(g.finishing.epilogue, result, row0, column0, min(g.m - row0, kStripRows),
                  min(g.n - column0, columns));
  }
}

template <class S, int R>
__device__ __forceinline__ void store_strip(const Arguments<S>& g, const typename S::Acc (&sums)[R],
                                            const TileOrigin<S>& tile, int row, int column) {
  constexpr int kCount = R / S::Scheme::kSums;
  const auto sum = [&](int i) {
    if constexpr (S::Scheme::kSums == 1)
      return sums[i];
    else
      return S::Scheme::join(sums[i], sums[kCount + i], sums[2 * kCount + i]);
  };
  using OfOperand = Result<typename S::Operand>;
  if constexpr (OfOperand::kMayBeWide) {
    if (g.result.wide) return store_sums<WideResult<typename S::Operand>, kCount>(g, sum, tile, row, column);
  }
  store_sums<typename OfOperand::Stored, kCount>(g, sum, tile, row, column);
}

// Whether to skip a tile. If so, none of its strips is marked for repair.
template <class S>
__device__ __forceinline__ bool skips_tile(const Arguments<S>& g, const Part& part) {
  if constexpr (S::Scheme::Tiles::kEvery && !S::kLower) {
    return false;
  } else {
    const TileOrigin<S> place(part.tile, g.schedule);
    if (!lies_outside(g, place) && !g.tiles.skips(place.row, place.column)) return false;
    if (part.end == g.schedule.work.steps && int(threadIdx.x) < S::kStrips)
      g.unfinished[int64_t(part.tile) * S::kStrips + int(threadIdx.x)] = 0;
    return true;
  }
}

// Stores the strip of consumer warp `warp`. A sum that is not finite may come from an infinity that was cut
// into planes (Inf - Inf), or from an overflow that only occurs in this order of summation. Then
// repair_kernel computes the whole strip (repair.cuh).
template <class S>
__device__ __forceinline__ void finish_strip(const Arguments<S>& g, typename S::Acc (&sum)[S::kSums],
                                             int tile, int warp, uint32_t scaled) {
  const TileOrigin<S> place(tile, g.schedule);
  if constexpr (S::Scheme::kLoop == Loop::promoting) {
    if (__any_sync(0xffffffffu, scaled != 0)) unscale_strip(g, sum, place, kStripRows * warp, 0);
    const bool unfinished = __any_sync(0xffffffffu, !all_finite(sum));
    if (fresh_lane() == 0) g.unfinished[int64_t(tile) * S::kStrips + warp] = unfinished;
    if (unfinished && g.segment.is_last && !kIsInvariant<typename S::Scheme>) return;
  }
  store_strip(g, sum, place, kStripRows * warp, 0);
  finish_stored_strip(g, place, kStripRows * warp, 0, S::kN);
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes
