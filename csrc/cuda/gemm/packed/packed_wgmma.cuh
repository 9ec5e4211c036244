// The kernel of packed_wgmma.cu and its instances.
//
//   producer    one warp asks for stages; the other three of its warpgroup give their registers away
//   consumers   four warpgroups, a unit each: below each other, along k (then their sums are added), or both
//
// It is no instance of run_wgmma(), because its stages have as many bytes as a unit has, which depends on the
// scales.
#pragma once

#include "cuda/gemm/packed/unit_consumer.cuh"
#include "cuda/gemm/packed/unit_sums.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The producer warp. Each request takes time of the TMA, however little it loads. So units that follow one
// another along k are one copy, and with S::kFew the x of a stage is one box of three dimensions, (pieces of
// 64 columns, rows, columns), unless k ends inside such a piece. Rows of units beyond the weight are replaced
// by its last ones, and their sums are not stored. Columns of codes beyond k meet zeros of x.
template <class S>
__device__ __forceinline__ void produce_units(typename S::Shared& shared, unsigned char* stages,
                                              const TensorMap& x, const UnitArguments& g) {
  const bool elected = elect_one();
  int stage = 0, requested = 0;
  uint32_t phase = 1;
  const auto meet = [] { named_barrier(1, S::kConsumerThreads + 32); };
  g.template each_part<S>([&](const Part& part) {
    const PackedPlace<S> place(part.tile, g);
    grid_dependency_wait();  // returns at once for all parts but the first
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      if (requested++ == g.stages) meet();
      Barrier* const full = &shared.ring.full[stage];
      wait_phase(&shared.ring.empty[stage], phase);
      if (elected) {
        unsigned char* const to = stages + stage * g.stage_bytes;
        const int first = step * S::kAlongK, bytes = min(S::kAlongK, g.column_units - first) * g.unit_bytes;
        arrive_expecting(full, 2 * S::kAlongK * 128 * g.x_rows + S::kRowUnits * bytes);
        FASTGEMM_UNROLL
        for (int i = 0; i < S::kRowUnits; ++i) {
          const int row = min(place.row_unit + i, g.row_units - 1);
          const unsigned char* const from = g.units + (int64_t(row) * g.column_units + first) * g.unit_bytes;
          unsigned char* const unit = to + g.x_bytes + i * g.row_pitch;
          g.tiles_across == 1 ? load_bytes_evict_first(unit, from, bytes, full)
                              : load_bytes(unit, from, bytes, full);
        }
        if (S::kFew && g.whole_pieces) {
          load_box(to, &x, full, 0, place.column, 2 * first);
        } else {
          FASTGEMM_UNROLL
          for (int i = 0; i < 2 * S::kAlongK; ++i)
            load_box(to + i * g.box_bytes, &x, full, (2 * first + i) * 64, place.column, 0);
        }
      }
      advance_ring(stage, phase, g.stages);
    }
  });
  if (requested <= g.stages) meet();
}

// Asks L2 for the first units of this block, and for the scales of its rows, while the kernel before still
// runs. L2 is where blocks agree on memory. So nothing is read too early, even if that kernel writes the
// weight.
template <class S>
__device__ __forceinline__ void prefetch_units(const UnitArguments& g, int thread, int threads) {
  constexpr int kLine = 128;
  const auto prefetch = [&](const void* from, int bytes) {
    FASTGEMM_NO_UNROLL
    for (int at = thread * kLine; at < bytes; at += threads * kLine)
      prefetch_line(static_cast<const unsigned char*>(from) + at);
  };
  int left = (64 << 10) / S::kRowUnits;  // of each row of units
  g.template each_part<S>([&](const Part& part) {
    const int row_unit = PackedPlace<S>(part.tile, g).row_unit, first = part.first * S::kAlongK;
    const int bytes = min((min(part.end * S::kAlongK, g.column_units) - first) * g.unit_bytes, left);
    if (bytes <= 0) return;
    left -= bytes;
    FASTGEMM_NO_UNROLL
    for (int row = row_unit; row < min(row_unit + S::kRowUnits, g.row_units); ++row) {
      prefetch(g.units + (int64_t(row) * g.column_units + first) * g.unit_bytes, bytes);
      if (g.scaled == Scaled::rows)
        prefetch(static_cast<const float*>(g.weight.scales) + row * packed::kRows,
                 inside(g.n, row * packed::kRows, packed::kRows) * int(sizeof(float)));
    }
  });
}

// Clears the rows of x that the boxes do not fill. These rows are multiplied, but their sums are never
// stored. With S::kFew they are what lies behind a piece: the next one, or the first unit, which has at least
// 4 KB.
template <class S>
__device__ __forceinline__ void clear_rows(unsigned char* stages, const UnitArguments& g) {
  const int units = S::kFew ? 0 : (S::kN - g.x_rows) * 8;
  if (units == 0) return;
  for (int stage = 0; stage < g.stages; ++stage)
    for (int box = 0; box < 2 * S::kAlongK; ++box)
      for (int i = int(threadIdx.x); i < units; i += S::kConsumerThreads)
        store_vector(stages + stage * g.stage_bytes + box * g.box_bytes + g.x_rows * 128 + i * 16, Unit{});
  fence_async_shared();
}

template <class S, class T, Code code, Scaled scaled, bool PLAIN>
__global__ void __launch_bounds__(S::kThreads, 1)
    packed_wgmma_kernel(const __grid_constant__ TensorMap x, const __grid_constant__ UnitGemm<T> g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(unsigned char, memory);
  auto& shared = *reinterpret_cast<typename S::Shared*>(memory);
  unsigned char* const table = memory + S::kStagesAt;
  unsigned char* const stages = table + S::table_bytes(code);
  const int warp = warp_index();
  const bool clustered = S::kMostOfCluster > 1 && g.cluster > 1;
  launch_dependents();
  if (clustered) {
    if (threadIdx.x == 0) {
      for (Barrier& sent : shared.sent) init_barrier(&sent, 1);
      fence_barrier_init();
    }
    __syncwarp();
    cluster_arrive();
  }
  if (warp >= S::kConsumerThreads / 32) {
    release_registers<24>();
    if (warp > S::kConsumerThreads / 32) {
      if constexpr (S::kAlongK > 1) prefetch_units<S>(g, int(threadIdx.x) - S::kConsumerThreads - 32, 96);
      return;
    }
    if (elect_one()) {
      shared.ring.init(1, S::kConsumerThreads / 32);
      fence_barrier_init();
      prefetch_map(&x);
    }
    __syncwarp();
    return produce_units<S>(shared, stages, x, g);
  }
  claim_registers<112>();
  if constexpr (code == Code::nf4) NormalFloatTable::fill<T>(table);
  clear_rows<S>(stages, g);
  named_barrier(1, S::kConsumerThreads + 32);
  if (clustered) cluster_wait();  // the other blocks have begun
  const int warpgroup = warp / 4;
  int turn = 0;
  UnitConsumer<S, T, code, scaled, PLAIN> consumer(shared, table, stages, g, warpgroup);
  g.template each_part<S>([&](const Part& part) {
    const PackedPlace<S> place(part.tile, g);
    float sum[S::kN / 2];
    const int row = (place.row_unit + warpgroup / S::kAlongK) * packed::kRows;
    consumer.multiply(sum, row, part.first, part.end);
    store_sums<S>(shared, g, sum, part, warpgroup, turn++);
  });
#endif
}

// The codes for which tiles of 128 rows of x have enough registers only if scales come in pairs.
template <Code code>
inline constexpr bool kNarrowFloats = code == Code::e2m1 || code == Code::int8;

// Launches the kernel. packed_wgmma_<code>.cu has the instances of a code.
template <Code code, class S, class T>
void launch_units(const TensorMap& x, const UnitGemm<T>& g, const LaunchShape& shape, Context& context) {
  const auto run = [&]<Scaled scaled, bool PLAIN = false>() {
    if constexpr (kIsBuilt<T>)
      launch<packed_wgmma_kernel<S, T, code, scaled, PLAIN>>("packed_wgmma", shape, context)(x, g);
    else
      not_built();
  };
  // For 8-bit codes and 64 rows of x, such a kernel would save 1 to 2 %.
  if constexpr (code == Code::int4 ? S::kN <= 64 : S::kAlongK > 1 && bits_of(code) == 8) {
    constexpr Scaled kUsual = code == Code::int4 ? Scaled::units : Scaled::rows;
    const bool plain = g.weight.zero == Zero::none && (kUsual == Scaled::rows || g.in_pairs);
    if (g.scaled == kUsual && plain) return run.template operator()<kUsual, true>();
  }
  if (g.scaled == Scaled::rows) return run.template operator()<Scaled::rows>();
  if constexpr (S::kN <= 64) {
    if (g.scaled == Scaled::units) return run.template operator()<Scaled::units>();
  }
  if constexpr (code == Code::nf4 && S::kN <= 64)
    run.template operator()<Scaled::halves>();
  else if constexpr (kNarrowFloats<code> && S::kN > 64)
    run.template operator()<Scaled::pairs>();
  else if constexpr (code != Code::nf4)
    run.template operator()<Scaled::weights>();
}

#define FASTGEMM_PACKED_INSTANCE(keyword, code, S, T)                                     \
  keyword template void launch_units<Code::code, S>(const TensorMap&, const UnitGemm<T>&, \
                                                    const LaunchShape&, Context&);
#define FASTGEMM_PACKED_INSTANCES_8_BITS(keyword, code)               \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile16, Half)         \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile32Tall, Half)     \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile64, Half)         \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile128, Half)        \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile16, BFloat16)     \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile32Tall, BFloat16) \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile64, BFloat16)     \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile128, BFloat16)
#define FASTGEMM_PACKED_INSTANCES(keyword, code)              \
  FASTGEMM_PACKED_INSTANCES_8_BITS(keyword, code)             \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile32, Half) \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile32, BFloat16)

}  // namespace fastgemm::FASTGEMM_TARGET
