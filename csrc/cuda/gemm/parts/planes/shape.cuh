// The block tile of the main kernel, its rings in shared memory, and the place of each plane in them. The
// scheme and the tile's width determine every offset at compile time.
//
//   shared memory  | ring 0: plane 0            | ring 1: planes 1 and 2     | barriers  (Bf16x6)
//                  | slot 0 | slot 1 | .. | 4   | slot 0 | slot 1 | slot 2   | full, empty of each slot
//
//   a slot of ring 0:  | A0 | B0 |
//   a slot of ring 1:  | A1 | A2 | B1 | B2 |      A1: plane 1 of a stage (kM, kStageK) of A
#pragma once

#include <iterator>

#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// The consumers' main loops (multiply.cuh).
template <class S>
class PromotingLoop;
template <class S>
class SweepingLoop;
template <class S>
class OneSweepLoop;

// Block tile (kM, kN), of which each consumer warpgroup computes 64 rows. Wide tiles of promoting schemes
// have 192 columns, the most for which all sums and those of a chunk fit in registers. Narrow tiles have 128
// columns. They are limited by the bandwidth of shared memory, which the copies to shared memory also use.
// They are for products that have too few wide tiles for all multiprocessors.
template <class Scheme_, int N>
struct Shape {
  using Scheme = Scheme_;
  using Operand = typename Scheme::Operand;
  using Element = typename Scheme::Element;
  using Acc = Accumulator<Element>;
  static constexpr bool kLower = false;
  static constexpr int kM = 128, kN = N;
  static_assert(kN == Scheme::kWideN || kN == 128);
  static constexpr int kConsumers = kM / 64, kConsumerWarps = 4 * kConsumers;  // warpgroups
  static constexpr int kConsumerThreads = 128 * kConsumers, kThreads = kConsumerThreads + 128;
  static constexpr int kElements = kN / 2, kSums = Scheme::kSums * kElements;  // per consumer thread
  static constexpr int kStrips = kConsumerWarps, kGroups = kConsumers;         // see WarpShape
  static constexpr bool kByWarps = false, kPaces = Scheme::Tiles::kEvery;
  using ConsumerLoop = std::conditional_t<
      Scheme::kLoop == Loop::promoting, PromotingLoop<Shape>,
      std::conditional_t<Scheme::kLoop == Loop::sweeping, SweepingLoop<Shape>, OneSweepLoop<Shape>>>;

  // The bytes of a stage: of one plane, and of all planes.
  static constexpr int kPlaneA = kM * Scheme::kStageK * int(sizeof(Element));
  static constexpr int kPlaneB = kN * Scheme::kStageK * int(sizeof(Element));
  static constexpr int kImageA = Scheme::kPlanes * kPlaneA, kImageB = Scheme::kPlanes * kPlaneB;
  static constexpr int kSteps = Scheme::kStageK * int(sizeof(Element)) / 32;  // instructions along k

  // A slot of a ring has the ring's planes of A, then those of B. The rings follow one another in shared
  // memory.
  static constexpr int kRings = int(std::size(Scheme::kRings));
  static_assert(kRings <= 4, "each has a warp of the producers' warpgroup");
  __host__ __device__ static constexpr int slots(int ring) {
    return kN == Scheme::kWideN ? Scheme::kRings[ring].slots : Scheme::kRings[ring].narrow_slots;
  }
  static constexpr int kSlotUnit = kPlaneA + kPlaneB;  // bytes of one plane of A and B
  template <int ring>
  static constexpr int kSlotBytes = Scheme::kRings[ring].planes * kSlotUnit;
  __host__ __device__ static constexpr int first_slot(int ring) {
    int first = 0;
    for (int r = 0; r < ring; ++r) first += slots(r);
    return first;
  }
  __host__ __device__ static constexpr int ring_begin(int ring) {
    int bytes = 0;
    for (int r = 0; r < ring; ++r) bytes += slots(r) * Scheme::kRings[r].planes * kSlotUnit;
    return bytes;
  }
  __host__ __device__ static constexpr int ring_of(int plane) {
    int ring = 0;
    while (plane >= Scheme::kRings[ring].first_plane + Scheme::kRings[ring].planes) ++ring;
    return ring;
  }
  static constexpr int kSlots = first_slot(kRings);

  struct alignas(1024) Shared {
    unsigned char slots[ring_begin(kRings)];
    Barrier full[kSlots], empty[kSlots];
  };
  static_assert(sizeof(Shared) <= 227 << 10);
};

// The same for only the lower triangle of a symmetric result. Its schedule counts the tiles of the rectangle
// that the triangle folds into (lower_triangle.cuh).
template <class Scheme, int N>
struct LowerShape : Shape<Scheme, N> {
  static constexpr bool kLower = true;
};

// The position of a producer or consumer in one ring; the phase flips at each turn.
template <class S, int ring>
struct RingPosition {
  static constexpr int kSlots = S::slots(ring);
  int slot = 0;
  uint32_t phase = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) slot = 0, phase ^= 1;
  }
  // The position `count` stages ago, at most kSlots.
  __device__ __forceinline__ RingPosition back(int count) const {
    return {slot >= count ? slot - count : slot - count + kSlots};
  }
  __device__ __forceinline__ Barrier* full(typename S::Shared& shared) const {
    return &shared.full[S::first_slot(ring) + slot];
  }
  __device__ __forceinline__ Barrier* empty(typename S::Shared& shared) const {
    return &shared.empty[S::first_slot(ring) + slot];
  }
  __device__ __forceinline__ Barrier* empty_before(typename S::Shared& shared) const {
    return &shared.empty[S::first_slot(ring) + (slot == 0 ? kSlots : slot) - 1];
  }
  __device__ __forceinline__ unsigned char* bytes(typename S::Shared& shared) const {
    return shared.slots + S::ring_begin(ring) + slot * S::template kSlotBytes<ring>;
  }
};

// The operands of all products. The descriptors are those of the first plane in the first slot of the first
// ring; multiply() adds offsets to them.
template <class S>
struct Operands {
  MatrixDescriptor a, b;

  __device__ __forceinline__ Operands(const typename S::Shared& shared, int warpgroup)
      : a(box_descriptor<Major::k, Swizzle::none>(shared.slots + warpgroup * (64 * 16), S::kM)),
        b(box_descriptor<Major::k, Swizzle::none>(shared.slots, S::kN)) {}

  // sum (64, kN) += one plane of A times one plane of B for a stage, from these slots of their rings.
  template <Product p>
  __device__ __forceinline__ void multiply(typename S::Acc (&sum)[S::kElements], int slot_a, int slot_b,
                                           bool accumulate) const {
    constexpr int kRingA = S::ring_of(p.a), kRingB = S::ring_of(p.b);
    constexpr Ring kA = S::Scheme::kRings[kRingA], kB = S::Scheme::kRings[kRingB];
    constexpr int kFromA = S::ring_begin(kRingA) + (p.a - kA.first_plane) * S::kPlaneA;
    constexpr int kFromB =
        S::ring_begin(kRingB) + kB.planes * S::kPlaneA + (p.b - kB.first_plane) * S::kPlaneB;
    const MatrixDescriptor from_a = a.at(kFromA + slot_a * S::template kSlotBytes<kRingA>);
    const MatrixDescriptor from_b = b.at(kFromB + slot_b * S::template kSlotBytes<kRingB>);
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSteps; ++i)
      wgmma<typename S::Scheme::template Multiplied<p>>(
          sum, from_a.at(box_step<Major::k, Swizzle::none>(S::kM, i)),
          from_b.at(box_step<Major::k, Swizzle::none>(S::kN, i)), accumulate || i > 0);
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
