// How decode_planes brings planes to its multiplying warps: its rings, the warp that loads float32, and those
// that cut it.
#pragma once

#include "cuda/gemm/fast/decode.cuh"
#include "cuda/gemm/parts/planes/cut.cuh"
#include "cuda/gemm/parts/planes/shape.cuh"
#include "cuda/gemm/parts/ring.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes::decode {

inline constexpr int kRows = plans::kDecodeRows;
// Warps: 4 multiply, 2 sets of 4 cut B and of A what the sets' fifth warps leave; those are in one warpgroup,
// whose registers are shared out together, with the warp that loads.
inline constexpr int kMultipliers = 4, kSets = 2, kCutB = 4, kSetWarps = kCutB + 1,
                     kCutters = kSets * kSetWarps;
// Registers: 128 x 208 + 256 x 112 + 128 x 80, all of them.
inline constexpr int kLoader = kMultipliers + kSets * kCutB, kThreads = 32 * (kLoader + 4);
inline constexpr int kUnits = 4;  // of 8 elements, in a stage of a row
inline constexpr int kRowBytes = 128;

// The multiplying warps hold two slots of ring 1, and both sets cut a stage each: three slots in place of
// five cost 2 % (8 x 4096 x 4096 on an H100). Wide tiles leave no room for more, if enough bytes are to be on
// their way from memory.
template <int N>
using DecodeSlots = std::conditional_t<(N <= 32), RingSlots<8, 5>,
                                       std::conditional_t<(N <= 64), RingSlots<8, 4>, RingSlots<6, 3>>>;

template <int N>
struct DecodeShape : PlaneRings<Bf16x6Invariant, kRows, N, DecodeSlots<N>> {
  using Rings = PlaneRings<Bf16x6Invariant, kRows, N, DecodeSlots<N>>;
  using ShortStages = void;                 // of so few products that a loop over them would take longer
  static constexpr int kSides = N + kRows;  // columns of B, then rows of A
  static constexpr int kPlaneBytes = Rings::ring_begin(Rings::kRings);
  static constexpr int kRawBytes = kSides * kRowBytes, kRaw = ((212 << 10) - kPlaneBytes) / kRawBytes;

  struct alignas(1024) Shared {
    unsigned char slots[kPlaneBytes];
    unsigned char raw[kRaw][kRawBytes];
    Barrier full[Rings::kSlots], empty[Rings::kSlots];  // of the planes' slots
    RingBarriers<kRaw> loaded;
    uint32_t largest[kSets * kUnits][kSides], smallest_less_1[kSets * kUnits][kSides];  // Magnitudes
    float scale[kSides];
    uint32_t plain[2][kCutters];  // whether nothing that the warp cut needs a scale; of two tiles in turn
  };
  static_assert(sizeof(Shared) <= 227 << 10);
  // What Cutter::cut_stage relies on.
  static_assert(kRaw >= Rings::slots(1) && Rings::slots(0) >= Rings::slots(1) + Rings::Scheme::kMostChunk);
};

struct DecodeArguments {
  Gemm<float> gemm;
  DecodeTiles tiles;
  int stages;            // of a tile
  int batch_a, batch_b;  // 0 where the batch shares the operand
  int chunk;             // stages that the tensor cores sum before a promotion
  bool pairs;            // two neighbours of a row of C can be stored together
};
struct DecodeMaps {
  TensorMap a, b;
};

template <class S, Major b_major>
class Producer {
 public:
  __device__ __forceinline__ void load(typename S::Shared& shared, const DecodeMaps& maps,
                                       const DecodeArguments& g, const DecodeTiles::Place& place) {
    const bool elected = elect_one();
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < g.stages; ++step)
      shared.loaded.fill(at_, elected, (g.tiles.rows + S::kN) * kRowBytes, [&](int stage, Barrier* full) {
        unsigned char* const to = shared.raw[stage];
        const int k = step * Bf16x6::kStageK, batch_b = place.batch * g.batch_b;
        if constexpr (b_major == Major::k) {
          load_box_evict_first(to, &maps.b, full, k, place.column, batch_b);
        } else {
          FASTGEMM_UNROLL
          for (int j = 0; j < S::kN; j += 32)
            load_box_evict_first(to + j * kRowBytes, &maps.b, full, place.column + j, k, batch_b);
        }
        load_box(to + S::kN * kRowBytes, &maps.a, full, k, place.row, place.batch * g.batch_a);
      });
  }

 private:
  typename RingBarriers<S::kRaw>::Position at_{0, 1};  // a fresh stage counts as emptied
};

// A warp that cuts: both operands, or the fifth one of a set, A alone. Its lanes have units of 8 rows of a
// matrix along k, where 8 lanes meet 8 different banks of the swizzle; of B along n, 32 columns.
template <class S, Major b_major, bool both>
class Cutter {
  static constexpr bool kAlongK = b_major == Major::k;
  static constexpr int kStripsB = !both ? 0 : kAlongK ? (S::kN + 8 * kCutB - 1) / (8 * kCutB) : S::kN / 32;
  // Of the warp, those of A behind B's.
  static constexpr int kStrips = kStripsB + (kRows / 8 + kSetWarps - 1) / kSetWarps;

 public:
  __device__ __forceinline__ Cutter(int set, int warp)
      : set_(set), warp_(warp), lane_(fresh_lane()), next_(set) {
    first_.phase = others_.phase = 1;
    if (set > 0) advance<1>();
    static_assert(kSets == 2);
  }
  __device__ __forceinline__ int number() const { return set_ * kSetWarps + warp_; }

  // Cuts the stages of a tile, scaled or not, and notes the magnitudes. Returns whether what this warp saw
  // needs no scale.
  __device__ __forceinline__ bool cut(typename S::Shared& shared, int stages, int rows, bool scaled) {
    Magnitudes magnitudes[kStrips];
    float scale[kStrips];
    FASTGEMM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      scale[i] = 1;
      if (scaled && takes(i, rows)) scale[i] = shared.scale[side(i)];
    }
    FASTGEMM_NO_UNROLL
    for (; next_ < stages; next_ += kSets) {
      cut_stage(shared, rows, scale, magnitudes);
      advance<kSets>();
    }
    next_ -= stages;
    bool plain = true;
    FASTGEMM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      if (!takes(i, kRows)) continue;
      plain = plain && Bf16x6::needs_no_scale(magnitudes[i]);
      shared.largest[kUnits * set_ + unit(i)][side(i)] = magnitudes[i].largest;
      shared.smallest_less_1[kUnits * set_ + unit(i)][side(i)] = magnitudes[i].smallest_less_1;
    }
    return __all_sync(0xffffffffu, plain);
  }

 private:
  template <int stages>
  __device__ __forceinline__ void advance() {
    raw_.template advance<stages>(), first_.template advance<stages>(), others_.template advance<stages>();
  }
  // A's strips are dealt from the fifth warp down, which has none of B; the first ones may have one more of
  // those.
  __device__ __forceinline__ int strip_of_a(int i) const {
    return kSetWarps - 1 - warp_ + kSetWarps * (i - kStripsB);
  }
  // The lane's row in strip i, of B's columns or behind them, and its unit of k.
  __device__ __forceinline__ int side(int i) const {
    if (i >= kStripsB) return S::kN + 8 * strip_of_a(i) + lane_ % 8;
    return kAlongK ? 8 * (warp_ + kCutB * i) + lane_ % 8 : 32 * i + lane_;
  }
  __device__ __forceinline__ int unit(int i) const { return kAlongK || i >= kStripsB ? lane_ / 8 : warp_; }
  // Whether strip i is one, where A has so many rows: the same in all lanes.
  __device__ __forceinline__ bool takes(int i, int rows) const {
    if (i >= kStripsB) return 8 * strip_of_a(i) < rows;
    return !kAlongK || 8 * (warp_ + kCutB * i) < S::kN;
  }

  // Waits for the rings in this order: a slot of the others that is empty says that all warps have cut the
  // stages up to as many before as that ring has slots, and no ring has fewer; so no barrier is two phases
  // behind the one that is waited for.
  __device__ __forceinline__ void cut_stage(typename S::Shared& shared, int rows,
                                            const float (&scale)[kStrips],
                                            Magnitudes (&magnitudes)[kStrips]) {
    wait_phase(others_.empty(shared), others_.phase);
    wait_phase(first_.empty(shared), first_.phase);
    wait_phase(&shared.loaded.full[raw_.stage], raw_.phase);
    const unsigned char* const raw = shared.raw[raw_.stage];
    FASTGEMM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      if (!takes(i, rows)) continue;
      uint32_t words[8], planes[Bf16x6::kPlanes][4];
      load(words, raw, i);
      FASTGEMM_UNROLL
      for (uint32_t& word : words) {
        magnitudes[i].template add<true>(word);
        word = __float_as_uint(__uint_as_float(word) * scale[i]);
      }
      Bf16x6::cut(words, planes);
      store(shared, planes, i);
    }
    fence_async_shared();
    __syncwarp();
    if (lane_ != 0) return;
    arrive(first_.full(shared)), arrive(others_.full(shared));
    arrive(&shared.loaded.empty[raw_.stage]);
  }

  __device__ __forceinline__ void load(uint32_t (&words)[8], const unsigned char* raw, int i) const {
    if (kAlongK || i >= kStripsB) {
      FASTGEMM_UNROLL
      for (int j = 0; j < 2; ++j) {
        const uint32_t plain = uint32_t(side(i) * kRowBytes + unit(i) * 32 + j * 16);
        const auto four = load_vector<Unit>(raw + swizzled<Swizzle::bytes128>(plain));
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) words[4 * j + e] = four[e];
      }
    } else {
      const unsigned char* const from = raw + (32 * i + unit(i) * 8) * kRowBytes + lane_ * 4;
      FASTGEMM_UNROLL
      for (int e = 0; e < 8; ++e) words[e] = *reinterpret_cast<const uint32_t*>(from + e * kRowBytes);
    }
  }

  // To the images of the slots: (units, rows or columns, 16 bytes) of each plane (cut.cuh).
  __device__ __forceinline__ void store(typename S::Shared& shared,
                                        const uint32_t (&planes)[Bf16x6::kPlanes][4], int i) const {
    const bool of_a = i >= kStripsB;
    const int bytes = of_a ? S::kPlaneA : S::kPlaneB, sides = of_a ? kRows : S::kN;
    const int at = (unit(i) * sides + side(i) - (of_a ? S::kN : 0)) * 16;
    unsigned char* const first = first_.bytes(shared) + (of_a ? 0 : S::kPlaneA) + at;
    unsigned char* const others = others_.bytes(shared) + (of_a ? 0 : 2 * S::kPlaneA) + at;
    FASTGEMM_UNROLL
    for (int p = 0; p < Bf16x6::kPlanes; ++p)
      store_vector(p == 0 ? first : others + (p - 1) * bytes,
                   Unit{{planes[p][0], planes[p][1], planes[p][2], planes[p][3]}});
  }

  int set_, warp_, lane_;
  int next_;  // the set's next stage, of the tile
  typename RingBarriers<S::kRaw>::Position raw_{0, 0};
  RingPosition<S, 0> first_;
  RingPosition<S, 1> others_;
};

// Rows [first, kRows) of A in every slot.
template <class S>
__device__ __forceinline__ void clear_rows(typename S::Shared& shared, int first) {
  const int rows = kRows - first;
  constexpr int kPlanesInAll = S::slots(0) + 2 * S::slots(1);
  for (int i = int(threadIdx.x); i < kPlanesInAll * kUnits * rows; i += kThreads) {
    const int plane = i / (kUnits * rows), unit = i / rows % kUnits, row = first + i % rows;
    const int other = plane - S::slots(0), slot = other < 0 ? plane : other / 2;
    const int from = other < 0 ? slot * S::template kSlotBytes<0>
                               : S::ring_begin(1) + slot * S::template kSlotBytes<1> + other % 2 * S::kPlaneA;
    store_vector(shared.slots + from + (unit * kRows + row) * 16, Unit{});
  }
  fence_async_shared();
}

// The scales of a tile, from the magnitudes that the cutters noted.
template <class S>
__device__ __forceinline__ void find_scales(typename S::Shared& shared) {
  for (int i = int(threadIdx.x); i < S::kSides; i += kThreads) {
    Magnitudes all;
    FASTGEMM_UNROLL
    for (int part = 0; part < kSets * kUnits; ++part)
      all.add({shared.largest[part][i], shared.smallest_less_1[part][i]});
    shared.scale[i] = Bf16x6::scale_of(all);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes::decode
