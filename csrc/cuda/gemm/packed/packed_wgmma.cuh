// The kernel of packed_wgmma.cu: what its launcher and its instances share. Contract: a block computes equal shares of
// the stages of all tiles (parts/schedules/shares.cuh); a tile has S::kRows rows of the weight and S::kN rows of x.
//
//   stage    S::kAlongK tiles of x, (kN, 128) each | four units of the weight
//   producer    one warp asks for them; the other three of its warpgroup give their registers away
//   consumers   four warpgroups, a unit each: below each other, or along k, and then their sums are added
//
// It is no instance of run_wgmma(), because its stages have as many bytes as a unit has, which depends on the scales.
#pragma once

#include "cuda/gemm/packed/fragments.cuh"
#include "cuda/gemm/packed/unit_scales.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/schedules/shares.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <int COLUMNS, int ALONG_K>
struct PackedTile {
  static constexpr int kWarpgroups = 4, kConsumerThreads = 128 * kWarpgroups, kThreads = kConsumerThreads + 128;
  static constexpr int kN = COLUMNS, kAlongK = ALONG_K;
  static constexpr int kRowUnits = kWarpgroups / kAlongK, kRows = packed::kRows * kRowUnits;
  static constexpr int kBoxBytes = kN * 128;           // of x: 64 columns
  static constexpr int kXBytes = 2 * kAlongK * kBoxBytes;
  // 80 KB of the weight in flight are enough. With more stages the multiprocessors near to memory take more than
  // their share of its bandwidth, and the others end late.
  static constexpr int kMostStages = 4;
  // Sums on their way out: columns of 64 rows, kPass at a time. The padding keeps rows of fragments in different banks.
  static constexpr int kPass = kN <= 64 ? kN / (kAlongK == 1 ? 2 : 1) : 16, kPitch = packed::kRows + 4;

  struct Shared {
    RingBarriers<kMostStages> ring;
    alignas(16) float sums[kWarpgroups][kPass * kPitch];
  };
  static constexpr int kSharedBytes = 220 << 10, kStagesAt = int(sizeof(Shared) + 1023) / 1024 * 1024;
  static constexpr int kMostStageBytes = (kSharedBytes - kStagesAt) / 2;
  static_assert(kXBytes + kWarpgroups * 14 * 1024 <= kMostStageBytes, "two stages at least");
};

// Where the scales are applied: to the float32 sums of a unit, to those of two steps (a group of 32 or more columns), or
// to the weights before they are multiplied, rounded to the type of x. With Scaled::weights there is one set of sums.
// Scales of whole rows are applied at the end.
enum class Scaled { units, pairs, weights };

struct UnitArguments {
  const unsigned char* units;
  PackedWeight weight;
  UnitScales scales;
  Scaled scaled;
  bool scales_weights, changes_weights;  // with Scaled::weights: not at the end; or it subtracts zeros
  bool in_pairs;  // scales and zeros are exact in the type of x
  int n, unit_bytes, row_units, column_units;
  int x_rows;  // in a box
  int tiles_down, tiles_across;  // along the rows of the weight and of x
  int unit_pitch, stage_bytes, stages;
  Shares shares;
  float* partials;  // of shared tiles; null: no tile is shared
  float* wholes;    // of the other tiles, if the second kernel applies an epilogue to them; else null
  ResultVectors vectors;
  Epilogue epilogue;
};
template <class T>
struct UnitGemm : UnitArguments {
  Gemm<T> gemm;
};

// The first unit along n, and the first row of x, of a tile. Tiles that read the same units are far from each other in
// this order, so that different blocks read the units at about the same time, and all but one find them in L2.
template <class S>
struct PackedPlace {
  int row_unit, column;
  __device__ __forceinline__ PackedPlace(int tile, const UnitArguments& g) {
    const int across = tile / g.tiles_down;
    row_unit = (tile - across * g.tiles_down) * S::kRowUnits, column = across * S::kN;
  }
};

__device__ __forceinline__ void advance_ring(int& stage, uint32_t& phase, int stages) {
  if (++stage == stages) stage = 0, phase ^= 1;
}

// The producer warp. Units beyond the weight are replaced by its last ones: their rows are not stored, and beyond k x
// is zero.
template <class S>
__device__ __forceinline__ void produce_units(typename S::Shared& shared, unsigned char* stages, const TensorMap& x,
                                              const UnitArguments& g) {
  const bool elected = elect_one();
  int stage = 0, requested = 0;
  uint32_t phase = 1;
  const auto meet = [] { named_barrier(1, S::kConsumerThreads + 32); };
  grid_dependency_wait();
  g.shares.each_part(int(blockIdx.x), [&](const Part& part) {
    const PackedPlace<S> place(part.tile, g);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      if (requested++ == g.stages) meet();
      Barrier* const full = &shared.ring.full[stage];
      wait_phase(&shared.ring.empty[stage], phase);
      if (elected) {
        unsigned char* const to = stages + stage * g.stage_bytes;
        arrive_expecting(full, 2 * S::kAlongK * 128 * g.x_rows + S::kWarpgroups * g.unit_bytes);
        FASTGEMM_UNROLL
        for (int i = 0; i < S::kWarpgroups; ++i) {
          const int row = min(place.row_unit + i / S::kAlongK, g.row_units - 1);
          const int column = min(step * S::kAlongK + i % S::kAlongK, g.column_units - 1);
          const unsigned char* const from = g.units + (int64_t(row) * g.column_units + column) * g.unit_bytes;
          if (g.tiles_across == 1)
            load_bytes_evict_first(to + S::kXBytes + i * g.unit_pitch, from, g.unit_bytes, full);
          else
            load_bytes(to + S::kXBytes + i * g.unit_pitch, from, g.unit_bytes, full);
        }
        FASTGEMM_UNROLL
        for (int i = 0; i < 2 * S::kAlongK; ++i)
          load_box(to + i * S::kBoxBytes, &x, full, (2 * S::kAlongK * step + i) * 64, place.column, 0);
      }
      advance_ring(stage, phase, g.stages);
    }
  });
  if (requested <= g.stages) meet();
}

// A warpgroup that multiplies units. Its products and conversions overlap: while a batch of k16 steps is multiplied, the
// next one is converted into the other set of registers.
template <class S, class T, Code code, Scaled scaled>
class UnitConsumer {
 public:
  static constexpr int kSums = S::kN / 2;
  using Sums = float[kSums];

  __device__ __forceinline__ UnitConsumer(typename S::Shared& shared, const unsigned char* stages,
                                          const UnitArguments& g, int warpgroup)
      : shared_(shared), stages_(stages), g_(g), warpgroup_(warpgroup), thread_(int(threadIdx.x) % 128) {}

  // sum = the product of stages [first, end) of a tile. `row` is this thread's first row of the weight.
  __device__ __forceinline__ void multiply(Sums& sum, int row, int first, int end) {
    Sums apart;
    Sums& acc = kPromotes ? apart : sum;
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = acc[i] = 0;
    uint32_t registers[2][kBatch][4];
    RowPair of_sums{0, 0};  // the scales of the sums in acc
    const RowPair row_scales = scales_of_rows(row), row_zeros = zeros_of_rows(row);
    Barrier* before = nullptr;
    FASTGEMM_NO_UNROLL
    for (int step = first; step < end; ++step) {
      const unsigned char* const stage = stages_ + stage_ * g_.stage_bytes;
      wait_phase(&shared_.ring.full[stage_], phase_);
      const unsigned char* const unit = stage + S::kXBytes + warpgroup_ * g_.unit_pitch;
      const int along_k = warpgroup_ % S::kAlongK;
      const bool valid = step * S::kAlongK + along_k < g_.column_units;
      const MatrixDescriptor x = X::descriptor(stage + along_k * (2 * S::kBoxBytes));
      RowPair scales = valid ? row_scales : RowPair{0, 0}, zeros = valid ? row_zeros : RowPair{0, 0};
      FASTGEMM_NO_UNROLL
      for (int begin = 0; begin < 8; begin += kUnrolled) {
        UnitCodes codes;
        if constexpr (kReadsAhead) codes.load(0, kUnrolled, unit + begin * kStepBytes, thread_);
        FASTGEMM_UNROLL
        for (int i = 0; i < kUnrolled; i += kBatch) {
          uint32_t(&a)[kBatch][4] = registers[i / kBatch % 2];
          wgmma_wait<1>();  // the products that read them
          if (!kPromotes && i == kBatch && begin == 0) release(before);
          if constexpr (!kReadsAhead) codes.load(i, kBatch, unit + begin * kStepBytes, thread_);
          FASTGEMM_UNROLL
          for (int j = 0; j < kBatch; ++j) {
            const int k = begin + i + j;
            if (begins_group(i + j) && !g_.scales.by_rows && (k & (g_.scales.steps - 1)) == 0) {
              scales = g_.scales.scales(unit, thread_, k);
              if constexpr (scaled != Scaled::units) zeros = g_.scales.zeros(unit, thread_, k);
              if (!valid) scales = zeros = {0, 0};
            }
            decode_step<T, code>(a[j], codes.words(i + j));
            if constexpr (scaled == Scaled::pairs) subtract(a[j], zeros);
            if (scaled == Scaled::weights && g_.changes_weights) change(a[j], scales, zeros);
          }
          if (kPromotes && (i == 0 || scaled == Scaled::pairs)) {
            wgmma_wait<0>(acc);
            if (i == 0 && begin == 0) release(before);
            promote(sum, acc, of_sums);
            of_sums = scales;
          }
          wgmma_fence(acc, a);
          FASTGEMM_UNROLL
          for (int j = 0; j < kBatch; ++j)
            wgmma<T>(acc, a[j], x.at(begin / 4 * S::kBoxBytes + (i + j) / 4 * S::kBoxBytes + X::step((i + j) % 4)),
                     !kPromotes || j > 0 || (scaled == Scaled::units && i > 0));
          wgmma_commit();
        }
      }
      before = &shared_.ring.empty[stage_];
      advance_ring(stage_, phase_, g_.stages);
    }
    wgmma_wait<0>(acc);
    release(before);
    if (kPromotes) promote(sum, acc, of_sums);
  }

 private:
  using X = OperandTile<T, Major::k, S::kN>;
  static constexpr bool kPromotes = scaled != Scaled::weights;
  // k16 steps of a unit: in a batch, and in the body of a loop. More of them are more code.
  static constexpr int kBatch = scaled == Scaled::units && S::kN < 64 ? 4 : 2;
  static constexpr int kUnrolled = scaled == Scaled::units ? 8 : 4;
  // With wide tiles there are no registers for all codes of a unit.
  static constexpr bool kReadsAhead = S::kN < 64;
  static constexpr int kStepBytes = 128 * 16 / kReadSteps<code>;

  // Whether this step of a unit may be the first one of a group.
  __device__ __forceinline__ static constexpr bool begins_group(int k) {
    return scaled == Scaled::units ? k == 0 : scaled == Scaled::weights || k % 2 == 0;
  }

  // What a thread reads of a unit's codes.
  struct UnitCodes {
    Unit read[kUnrolled / kReadSteps<code>];

    __device__ __forceinline__ void load(int first, int count, const unsigned char* unit, int thread) {
      FASTGEMM_UNROLL
      for (int k = first; k < first + count; k += kReadSteps<code>)
        if (k % kReadSteps<code> == 0)
          read[k / kReadSteps<code>] = load_vector<Unit>(unit + (k / kReadSteps<code> * 128 + thread) * 16);
    }
    __device__ __forceinline__ const uint32_t* words(int k) const {
      return read[k / kReadSteps<code>].v + k % kReadSteps<code> * kStepWords<code>;
    }
  };

  // Releases a stage, if there is one, whose products are complete.
  __device__ __forceinline__ void release(Barrier* stage) {
    __syncwarp();  // all lanes have read it
    if (stage && threadIdx.x % 32 == 0) arrive(stage);
  }

  __device__ __forceinline__ static void promote(Sums& sum, const Sums& acc, const RowPair& s) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; ++i) sum[i] = multiply_add(acc[i], i % 4 < 2 ? s.first : s.second, sum[i]);
  }

  // The scales of whole rows, if a zero that is added needs them before the end.
  __device__ __forceinline__ RowPair scales_of_rows(int row) const {
    if (scaled != Scaled::weights || !g_.scales.by_rows || !g_.scales_weights) return {1, 1};
    const auto* const scales = static_cast<const float*>(g_.weight.scales);
    return {scales[min(row, g_.n - 1)], scales[min(row + 8, g_.n - 1)]};
  }
  __device__ __forceinline__ RowPair zeros_of_rows(int row) const {
    if (scaled != Scaled::weights || !g_.scales.by_rows) return {0, 0};
    return {row_zero(g_.weight, min(row, g_.n - 1)), row_zero(g_.weight, min(row + 8, g_.n - 1))};
  }

  __device__ __forceinline__ static void subtract(uint32_t (&a)[4], const RowPair& zeros) {
    const uint32_t pairs[2] = {pair_of<T>(zeros.first), pair_of<T>(zeros.second)};
    subtract_zeros<T>(a, pairs);
  }
  // code * scale + zero or (code - zero) * scale, rounded to T.
  __device__ __forceinline__ void change(uint32_t (&a)[4], const RowPair& scales, RowPair zeros) const {
    if (g_.weight.zero == Zero::subtracted) {
      subtract(a, zeros);
      zeros = {0, 0};
    }
    if (!g_.scales_weights) return;
    if (g_.in_pairs) {
      const uint32_t s[2] = {pair_of<T>(scales.first), pair_of<T>(scales.second)};
      const uint32_t z[2] = {pair_of<T>(zeros.first), pair_of<T>(zeros.second)};
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) a[p] = multiply_add_pairs<T>(a[p], s[p % 2], z[p % 2]);
    } else {
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) {
        const float s = p % 2 ? scales.second : scales.first, z = p % 2 ? zeros.second : zeros.first;
        a[p] = round_pair<T>(multiply_add(low_of<T>(a[p]), s, z), multiply_add(high_of<T>(a[p]), s, z));
      }
    }
  }

  typename S::Shared& shared_;
  const unsigned char* stages_;
  const UnitArguments& g_;
  int warpgroup_, thread_;
  int stage_ = 0;
  uint32_t phase_ = 0;
};

// The scales that sums of four rows of the weight are multiplied by at the end.
__device__ __forceinline__ Vector16<float> scales_at_end(const UnitArguments& g, int row) {
  const float global = g.weight.global ? *g.weight.global : 1.0f;
  const bool by_rows = g.scales.by_rows && !g.scales_weights;
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

// Where the sums of a tile lie that a second kernel stores: those of the first block or of a later one that shares the
// tile, or those of a tile that no blocks share. [column of the tile][row].
template <class S>
__device__ __forceinline__ float* share_of(const UnitArguments& g, int block, bool begins_tile) {
  return g.partials + (int64_t{block} * 2 + begins_tile) * (S::kN * S::kRows);
}
template <class S>
__device__ __forceinline__ float* whole_of(const UnitArguments& g, int tile) {
  return g.wholes + int64_t{tile} * (S::kN * S::kRows);
}

// Adds the sums of warpgroups that share rows, in the order of k, and stores them as results or partial sums.
template <class S, class T>
__device__ __forceinline__ void store_sums(typename S::Shared& shared, const UnitGemm<T>& g,
                                           float (&sum)[S::kN / 2], const Part& part, int warpgroup) {
  constexpr int kThreads = 128 * S::kAlongK;  // share 64 rows
  constexpr int kSums = S::kPass / 2;         // of a thread in a pass
  const PackedPlace<S> place(part.tile, g);
  const int row_unit = warpgroup / S::kAlongK, thread = int(threadIdx.x) % kThreads;
  const bool whole = part.first == 0 && part.end == g.shares.steps, stores = whole && !g.wholes;
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
    for (int i = 0; i + kSums < S::kN / 2; ++i) sum[i] = sum[i + kSums];  // one piece of code for all passes
    meet();
    constexpr int kVectors = packed::kRows / 4;
    FASTGEMM_NO_UNROLL
    for (int i = thread; i < kVectors * S::kPass; i += kThreads) {
      const int row = i % kVectors * 4, column = i / kVectors;
      const float* const from = shared.sums[row_unit * S::kAlongK] + column * S::kPitch + row;
      auto v = load_vector<Vector16<float>>(from);
      FASTGEMM_UNROLL
      for (int k = 1; k < S::kAlongK; ++k) {
        const auto next = load_vector<Vector16<float>>(from + k * (S::kPass * S::kPitch));
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) v[e] += next[e];
      }
      if (place.column + pass + column >= g.gemm.m) break;
      if (stores)
        store_results<false>(g, (place.row_unit + row_unit) * packed::kRows + row, place.column + pass + column, v);
      else
        store_vector(to + (pass + column) * S::kRows + row_unit * packed::kRows + row, v);
    }
    meet();
  }
}

// Rows of x beyond those that the boxes have. They are multiplied, but their sums are never stored.
template <class S>
__device__ __forceinline__ void clear_rows(unsigned char* stages, const UnitArguments& g) {
  const int units = (S::kN - g.x_rows) * 8;
  if (units == 0) return;
  for (int stage = 0; stage < g.stages; ++stage)
    for (int box = 0; box < 2 * S::kAlongK; ++box)
      for (int i = int(threadIdx.x); i < units; i += S::kConsumerThreads)
        store_vector(stages + stage * g.stage_bytes + box * S::kBoxBytes + g.x_rows * 128 + i * 16, Unit{});
  fence_async_shared();
}

template <class S, class T, Code code, Scaled scaled>
__global__ void __launch_bounds__(S::kThreads, 1)
    packed_wgmma_kernel(const __grid_constant__ TensorMap x, const __grid_constant__ UnitGemm<T> g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(unsigned char, memory);
  auto& shared = *reinterpret_cast<typename S::Shared*>(memory);
  unsigned char* const stages = memory + S::kStagesAt;
  const int warp = warp_index();
  launch_dependents();
  if (warp >= S::kConsumerThreads / 32) {
    release_registers<24>();
    if (warp > S::kConsumerThreads / 32) return;
    if (elect_one()) {
      shared.ring.init(1, S::kConsumerThreads / 32);
      fence_barrier_init();
      prefetch_map(&x);
    }
    __syncwarp();
    return produce_units<S>(shared, stages, x, g);
  }
  claim_registers<112>();
  clear_rows<S>(stages, g);
  named_barrier(1, S::kConsumerThreads + 32);
  const int warpgroup = warp / 4;
  UnitConsumer<S, T, code, scaled> consumer(shared, stages, g, warpgroup);
  g.shares.each_part(int(blockIdx.x), [&](const Part& part) {
    const PackedPlace<S> place(part.tile, g);
    const int row = (place.row_unit + warpgroup / S::kAlongK) * packed::kRows + warp % 4 * 16 + int(threadIdx.x) % 32 / 4;
    float sum[S::kN / 2];
    consumer.multiply(sum, row, part.first, part.end);
    store_sums<S>(shared, g, sum, part, warpgroup);
  });
#endif
}

using PackedTile16 = PackedTile<16, 4>;
using PackedTile32 = PackedTile<32, 4>;
using PackedTile64 = PackedTile<64, 1>;
using PackedTile128 = PackedTile<128, 1>;  // only with Scaled::weights

// Launches the kernel. packed_wgmma_<code>.cu has the instances of a code.
template <Code code, class S, class T>
void launch_units(const TensorMap& x, const UnitGemm<T>& g, const LaunchShape& shape, Context& context) {
  const auto run = [&]<Scaled scaled>() {
    launch<packed_wgmma_kernel<S, T, code, scaled>>("packed_wgmma", shape, context)(x, g);
  };
  if constexpr (S::kN <= 64) {
    if (g.scaled == Scaled::units) return run.template operator()<Scaled::units>();
    if (g.scaled == Scaled::pairs) return run.template operator()<Scaled::pairs>();
  }
  run.template operator()<Scaled::weights>();
}

#define FASTGEMM_PACKED_INSTANCE(keyword, code, S, T) \
  keyword template void launch_units<Code::code, S>(const TensorMap&, const UnitGemm<T>&, const LaunchShape&, Context&);
#define FASTGEMM_PACKED_INSTANCES(keyword, code)                    \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile16, Half)       \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile32, Half)       \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile64, Half)       \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile128, Half)      \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile16, BFloat16)   \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile32, BFloat16)   \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile64, BFloat16)   \
  FASTGEMM_PACKED_INSTANCE(keyword, code, PackedTile128, BFloat16)

}  // namespace fastgemm::FASTGEMM_TARGET
