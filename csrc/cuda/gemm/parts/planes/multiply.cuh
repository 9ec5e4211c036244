// The main loops of the consumers, which compute a tile's sums from its stages. A loop waits for a stage and
// issues all of its products. Then it waits for the products of the stage before and releases that stage's
// slots. So the tensor cores always have one stage of work queued.
//
// OneSweepLoop (int16x4) has three sums, one for each power of 2^8.
//
//   PromotingLoop, chunk of 3 stages             SweepingLoop (int8x10)
//   stage       0      1      2                  sweep 1, all of k:  S3, S2
//   small       p2q0.. p2q0.. p2q0..  first      S  = 2^16 S3 + 2^8 S2
//   largest     p0q0   p0q0   p0q0    then       sweep 2, all of k:  S += S1, S0
//   registers   sums += chunk                    result = 2^8 S + S0
#pragma once

#include "cuda/gemm/parts/planes/shape.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Issues all products of a list in order. `slot` is the current slot of each ring.
template <class S, Product... products>
__device__ __forceinline__ void multiply_all(Products<products...>, const Operands<S>& operands,
                                             typename S::Acc (&sum)[S::kElements],
                                             const int (&slot)[S::kRings], bool accumulate) {
  ((operands.template multiply<products>(sum, slot[S::ring_of(products.a)], slot[S::ring_of(products.b)],
                                         accumulate),
    accumulate = true),
   ...);
}

// For schemes whose sums are rounded: the tensor cores sum short chunks of k, and each chunk is added to the
// tile's sums in registers (register promotion). Ring 0 has plane 0, ring 1 the other planes.
template <class S>
class PromotingLoop {
  using Scheme = typename S::Scheme;

 public:
  __device__ __forceinline__ PromotingLoop(typename S::Shared& shared, int warp, const int& chunk)
      : shared_(shared),
        operands_(shared, warp / 4),
        chunk_(chunk),
        ahead_(Scheme::kStagger * (warp / 4)),
        leader_(threadIdx.x % 32 == 0) {}

  // sum = the product of `stages` stages.
  __device__ __forceinline__ void multiply(float (&sum)[S::kSums], int stages) {
    float chunk[S::kSums];
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; ++i) sum[i] = 0;
    int count = min(max(chunk_ - ahead_, 1), stages);
    while (true) {
      multiply_chunk(chunk, count);
      FASTGEMM_UNROLL
      for (int i = 0; i < S::kSums; ++i) sum[i] += chunk[i];
      stages -= count;
      if (stages <= 0) return;
      count = min(chunk_, stages);
    }
  }

 private:
  // Calls body(0), ... body(stages - 1). As separate loops in fused kernels they would spill registers.
  template <class Body>
  __device__ __forceinline__ static void for_stages(int stages, Body&& body) {
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < stages; ++i) body(i);
  }

  __device__ __forceinline__ void multiply_chunk(float (&chunk)[S::kSums], int stages) {
    static_assert(S::slots(0) >= Scheme::kMostChunk + Scheme::kStagger,
                  "plane 0 of a chunk stays until its end");
    constexpr bool kSameUnit = Scheme::kSmallUnit == 1.f;
    for_stages(stages, [&](int i) {
      wait_phase(plane0_.full(shared_), plane0_.phase);
      wait_phase(others_.full(shared_), others_.phase);
      wgmma_fence(chunk);
      multiply_all<S>(typename Scheme::Small{}, operands_, chunk, {plane0_.slot, others_.slot}, i > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (leader_ && i > 0) arrive(others_.empty_before(shared_));
      plane0_.advance(), others_.advance();
    });
    if constexpr (!kSameUnit) {
      wgmma_wait<0>(chunk);
      FASTGEMM_UNROLL
      for (int i = 0; i < S::kSums; ++i) chunk[i] *= Scheme::kSmallUnit;
    }
    RingPosition<S, 0> again = plane0_.back(stages);
    for_stages(stages, [&](int i) {
      wgmma_fence(chunk);
      multiply_all<S>(Products<Product{0, 0}>{}, operands_, chunk, {again.slot, 0}, true);
      wgmma_commit();
      wgmma_wait<1>();
      if (leader_) arrive(i == 0 ? others_.empty_before(shared_) : again.empty_before(shared_));
      again.advance();
    });
    wgmma_wait<0>(chunk);
    if (leader_) arrive(again.empty_before(shared_));
  }

  typename S::Shared& shared_;
  Operands<S> operands_;
  const int& chunk_;  // stages
  int ahead_;         // the number of stages by which a tile's first chunk is shorter
  bool leader_;       // this lane arrives at barriers for its warp
  RingPosition<S, 0> plane0_;
  RingPosition<S, 1> others_;
};

// For Int8x10: two sweeps over k with two sums each, exact modulo 2^32.
template <class S>
class SweepingLoop {
  using Scheme = typename S::Scheme;
  using Sums = uint32_t[S::kSums];

 public:
  __device__ __forceinline__ SweepingLoop(typename S::Shared& shared, int warp, int /*chunk*/)
      : shared_(shared), operands_(shared, warp / 4), leader_(threadIdx.x % 32 == 0) {}

  // sum = the product of `stages` stages.
  __device__ __forceinline__ void multiply(Sums& sum, int stages) {
    Sums other;
    sweep(
        sum, other, stages,
        [&](const int(&slot)[S::kRings], int i) {
          multiply_all<S>(typename Scheme::S3{}, operands_, sum, slot, i > 0);
          multiply_all<S>(typename Scheme::S2{}, operands_, other, slot, i > 0);
        },
        plane0_, plane1_, plane2_, plane3_);
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; ++i) sum[i] = ((sum[i] << 8) + other[i]) << 8;
    sweep(
        sum, other, stages,
        [&](const int(&slot)[S::kRings], int i) {
          multiply_all<S>(typename Scheme::S1{}, operands_, sum, slot, true);
          multiply_all<S>(typename Scheme::S0{}, operands_, other, slot, i > 0);
        },
        plane0_, plane1_);
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; ++i) sum[i] = (sum[i] << 8) + other[i];
  }

 private:
  template <class Issue, class... Positions>
  __device__ __forceinline__ void sweep(Sums& sum, Sums& other, int stages, const Issue& issue,
                                        Positions&... rings) {
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < stages; ++i) {
      (wait_phase(rings.full(shared_), rings.phase), ...);
      wgmma_fence(sum, other);
      issue({plane0_.slot, plane1_.slot, plane2_.slot, plane3_.slot}, i);
      wgmma_commit();
      wgmma_wait<1>();
      if (leader_ && i > 0) (arrive(rings.empty_before(shared_)), ...);
      (rings.advance(), ...);
    }
    wgmma_wait<0>(sum, other);
    if (leader_) (arrive(rings.empty_before(shared_)), ...);
  }

  typename S::Shared& shared_;
  Operands<S> operands_;
  bool leader_;
  RingPosition<S, 0> plane0_;
  RingPosition<S, 1> plane1_;
  RingPosition<S, 2> plane2_;
  RingPosition<S, 3> plane3_;
};

// For Int16x4: one sweep over k with three sums, which are joined when they are stored. Joined earlier, they
// would take a third fewer registers, but more while they are being joined.
template <class S>
class OneSweepLoop {
  using Scheme = typename S::Scheme;

 public:
  __device__ __forceinline__ OneSweepLoop(typename S::Shared& shared, int warp, int /*chunk*/)
      : shared_(shared), operands_(shared, warp / 4), leader_(threadIdx.x % 32 == 0) {}

  // Sums the products of `stages` stages. `sum` holds three sums one after the other: S2, S1 and S0 (Int16x4
  // in scheme.cuh).
  __device__ __forceinline__ void multiply(typename S::Acc (&sum)[S::kSums], int stages) {
    using Sum = typename S::Acc[S::kElements];
    Sum &s2 = *reinterpret_cast<Sum*>(sum), &s1 = *reinterpret_cast<Sum*>(sum + S::kElements),
        &s0 = *reinterpret_cast<Sum*>(sum + 2 * S::kElements);
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < stages; ++i) {
      wait_phase(at_.full(shared_), at_.phase);
      wgmma_fence(s2, s1, s0);
      multiply_all<S>(typename Scheme::S2{}, operands_, s2, {at_.slot}, i > 0);
      multiply_all<S>(typename Scheme::S1{}, operands_, s1, {at_.slot}, i > 0);
      multiply_all<S>(typename Scheme::S0{}, operands_, s0, {at_.slot}, i > 0);
      wgmma_commit();
      wgmma_wait<1>();
      if (leader_ && i > 0) arrive(at_.empty_before(shared_));
      at_.advance();
    }
    wgmma_wait<0>(s2, s1, s0);
    if (leader_) arrive(at_.empty_before(shared_));
  }

 private:
  typename S::Shared& shared_;
  Operands<S> operands_;
  bool leader_;
  RingPosition<S, 0> at_;
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
