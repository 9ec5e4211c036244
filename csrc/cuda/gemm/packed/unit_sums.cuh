// The stores of packed_wgmma's sums: as results, or as partial sums for its second kernel.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/gemm/packed/unit_arguments.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The scales that multiply the sums of four rows of the weight at the end.
__device__ __forceinline__ Vector16<float> scales_at_end(const UnitArguments& g, int row) {
  const float global = (g.weight.global ? *g.weight.global : 1.0f) * g.of_sums;
  const bool by_rows = g.scaled == Scaled::rows;
  Vector16<float> v;
  FASTGEMM_UNROLL
  for (int e = 0; e < 4; ++e)
    v[e] = by_rows && row + e < g.n ? static_cast<const float*>(g.weight.scales)[row + e] * global : global;
  return v;
}

// Stores four neighbours of row `column` of the result, from weight row `row` on.
template <bool fuses, class T>
__device__ __forceinline__ void store_results(const UnitGemm<T>& g, int row, int column, Vector16<float> v) {
  const int valid = inside(g.n, row, 4);
  const Vector16<float> scales = scales_at_end(g, row);
  FASTGEMM_UNROLL
  for (int e = 0; e < 4; ++e) v[e] *= scales[e];
  with_stored_type(g.gemm.result, [&]<class Out>() {
    if (fuses && g.epilogue.asked())
      store_row_finished<Out, 4>(g.epilogue, g.gemm.result, g.vectors, column, row, v.v, valid);
    else
      store_row_as<Out, 4>(g.gemm.result, g.vectors, column, row, v.v, valid);
  });
}

// Where a tile's sums lie until the second kernel stores them, as [column of the tile][row]. share_of() is
// for a tile that blocks share: each block has a place of its own. whole_of() is for a tile that one block
// computes.
template <class S>
__device__ __forceinline__ float* share_of(const UnitArguments& g, int block, bool begins_tile) {
  return g.partials + (int64_t{block} * 2 + begins_tile) * (S::kN * S::kRows);
}
template <class S>
__device__ __forceinline__ float* whole_of(const UnitArguments& g, int tile) {
  return g.wholes + int64_t{tile} * (S::kN * S::kRows);
}

// How the blocks of a cluster add their sums of a tile. They finish tiles by turns: the others send their
// sums, and the finisher waits for them, and adds all in the order of k.
//
// The memory of the others' sums is free in time without a signal: before a block sends again to the same
// block, it finished a tile of its own, and waited for the sums that this block sent after it had read them.
// This holds for each 64 rows alone, whose warpgroups wait only for those of the same rows.
template <class S>
struct ClusterTile {
  typename S::Shared& shared;
  int cluster, rank, finisher;
  Barrier* sent;  // of the sums of these warpgroups' 64 rows

  __device__ __forceinline__ ClusterTile(typename S::Shared& shared, const UnitArguments& g, int turn,
                                         int row_unit)
      : shared(shared),
        cluster(g.cluster),
        rank(cluster_rank()),
        finisher(turn & (g.cluster - 1)),
        sent(&shared.sent[row_unit]) {}

  __device__ __forceinline__ bool sends() const { return rank != finisher; }
  __device__ __forceinline__ void send(int at, const Vector16<float>& v) const {
    store_async_remote(shared.of_others[rank - (rank > finisher)] + at, v, sent, finisher);
  }
  // All threads of the finisher that have these 64 rows call it.
  __device__ __forceinline__ void wait(int columns, uint32_t parity, int thread) const {
    const int bytes = (cluster - 1) * columns * packed::kRows * int(sizeof(float));
    if (thread == 0) arrive_expecting(sent, bytes);
    wait_phase(sent, parity);
  }
  __device__ __forceinline__ Vector16<float> add(int at, const Vector16<float>& own) const {
    Vector16<float> sum{};
    FASTGEMM_NO_UNROLL
    for (int from = 0; from < cluster; ++from) {
      const float* const other = shared.of_others[from - (from > rank)] + at;
      const auto v = from == rank ? own : load_vector<Vector16<float>>(other);
      FASTGEMM_UNROLL
      for (int e = 0; e < 4; ++e) sum[e] = from == 0 ? v[e] : sum[e] + v[e];
    }
    return sum;
  }
};

// Adds the sums of warpgroups that share rows, in the order of k, and stores them as results or partial sums.
template <class S, class T>
__device__ __forceinline__ void store_sums(typename S::Shared& shared, const UnitGemm<T>& g,
                                           float (&sum)[S::kN / 2], const Part& part, int warpgroup,
                                           int turn) {
  constexpr int kThreads = 128 * S::kAlongK;  // share 64 rows
  constexpr int kSums = S::kPass / 2;         // of a thread in a pass
  const PackedPlace<S> place(part.tile, g);
  const int row_unit = warpgroup / S::kAlongK, thread = int(threadIdx.x) % kThreads;
  const bool clustered = S::kMostOfCluster > 1 && g.cluster > 1;
  const bool whole = clustered || (part.first == 0 && part.end == g.shares.steps),
             stores = whole && !g.wholes;
  float* const to = stores  ? nullptr
                    : whole ? whole_of<S>(g, part.tile)
                            : share_of<S>(g, int(blockIdx.x), part.first == 0);
  const auto meet = [&] { named_barrier(2 + row_unit, kThreads); };
  FASTGEMM_NO_UNROLL
  for (int pass = 0; pass < S::kN && place.column + pass < g.gemm.m; pass += S::kPass) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; ++i) {
      const Position p = WgmmaLayout<T>::c(int(threadIdx.x) % 128, i);
      shared.sums[warpgroup][p.column * S::kPitch + p.row] = sum[i];
    }
    FASTGEMM_UNROLL
    for (int i = 0; i + kSums < S::kN / 2; ++i) sum[i] = sum[i + kSums];  // so all passes run the same code
    meet();
    const ClusterTile<S> tile(shared, g, turn, row_unit);
    if (clustered && !tile.sends())
      tile.wait(inside(g.gemm.m, place.column, S::kN), turn >> g.log_cluster & 1, thread);
    constexpr int kVectors = packed::kRows / 4;
    FASTGEMM_NO_UNROLL
    for (int i = thread; i < kVectors * S::kPass; i += kThreads) {
      const int row = i % kVectors * 4, column = i / kVectors;
      const int at = column * S::kRows + row_unit * packed::kRows + row;
      const float* const from = shared.sums[row_unit * S::kAlongK] + column * S::kPitch + row;
      auto v = load_vector<Vector16<float>>(from);
      FASTGEMM_UNROLL
      for (int k = 1; k < S::kAlongK; ++k) {
        const auto next = load_vector<Vector16<float>>(from + k * (S::kPass * S::kPitch));
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) v[e] += next[e];
      }
      if (place.column + pass + column >= g.gemm.m) break;
      if (clustered) {
        if (tile.sends()) {
          tile.send(at, v);
          continue;
        }
        v = tile.add(at, v);
      }
      if (stores)
        store_results<false>(g, (place.row_unit + row_unit) * packed::kRows + row,
                             place.column + pass + column, v);
      else
        store_vector_whole(to + pass * S::kRows + at, v);
    }
    meet();
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
