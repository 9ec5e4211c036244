// The block tile of GPUs without wgmma, its ring in shared memory, and the order of a stage's products.
// Warps multiply by mma.sync from registers, so that what counts is how often a fragment that was loaded is
// used: a warp loads each plane's fragments once a step and multiplies them with those of all planes that
// the scheme pairs them with. Bf16x6 has 3 multiply-adds for each element that it loads where a plain
// product of bf16 by the same tiles has one and a half.
//
//   shared memory   | slot 0            | slot 1            |       a slot: a stage of all planes of A,
//                   | A0 A1 A2 B0 B1 B2 | A0 A1 A2 B0 B1 B2 |       then of B, as the pre-pass wrote it
//
//   Bf16x6, a stage of two steps       phase     0   1   2   3   4     5 .. 9      10 | 11
//                                      a, b      20  02  11  10  01    the same    00   00
//                                      step      0   0   0   0   0     1           0    1
//                                                                                  ^ the turn
//
// A phase is one product of two planes in one step, 16 mma of a warp. Meanwhile it loads the fragments that
// the next phase is the first to use, and early phases copy a later stage. At the turn all fragments of the
// stage are in registers, so that its slot is free, and the next stage must be there: there is one barrier a
// stage, and the products after it hide the latency of the next stage's first loads.
#pragma once

#include "cuda/device/platform.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Plane a of A times plane b of B in a step of the stage, added to sums number `sum`.
struct Phase {
  int a, b, step, sum;
};

// The phases of a stage, and the one before which warps turn to the next stage.
template <int count>
struct Phases {
  static constexpr int kCount = count;
  Phase phase[count];
  int turn;

  // Whether no phase before t uses these fragments.
  __host__ __device__ constexpr bool is_first_of_a(int t) const {
    for (int u = 0; u < t; ++u)
      if (phase[u].a == phase[t].a && phase[u].step == phase[t].step) return false;
    return true;
  }
  __host__ __device__ constexpr bool is_first_of_b(int t) const {
    for (int u = 0; u < t; ++u)
      if (phase[u].b == phase[t].b && phase[u].step == phase[t].step) return false;
    return true;
  }
  // Fragments of A are loaded in the phase that is the first to use them or in the one before it, those of B
  // in the one before it, and those of the first phase in the last one: all loads of the stage come before
  // the turn, and those of the next stage replace none that are still used.
  __host__ __device__ constexpr bool is_right() const {
    for (int t = turn; t < count; ++t)
      if (is_first_of_a(t) || (t > turn && is_first_of_b(t))) return false;
    const Phase &first = phase[0], &last = phase[count - 1];
    return turn > 0 && first.step == 0 && (last.step > 0 || (last.a != first.a && last.b != first.b));
  }
};

// Small products of all steps, then the largest ones.
template <int steps, Product... small>
__host__ __device__ constexpr auto promoting_phases(Products<small...>) {
  constexpr Product kSmall[] = {small...};
  Phases<int(sizeof...(small) + 1) * steps> phases{};
  int t = 0;
  for (int step = 0; step < steps; ++step)
    for (const Product& p : kSmall) phases.phase[t++] = {p.a, p.b, step, 0};
  phases.turn = t;
  for (int step = 0; step < steps; ++step) phases.phase[t++] = {0, 0, step, 0};
  return phases;
}

// All products of planes with a + b = top, which are sums number 0, and a + b = top - 1, number 1: plane by
// plane of A, so that one of A and one of B are in use at a time.
template <int top>
__host__ __device__ constexpr auto sweeping_phases() {
  Phases<2 * top + 1> phases{};
  int t = 0;
  for (int a = top; a >= 0; --a) {
    if (a < top) phases.phase[t++] = {a, top - 1 - a, 0, 1};
    phases.phase[t++] = {a, top - a, 0, 0};
  }
  phases.turn = t - 1;
  return phases;
}

// The products of two planes, those with a + b = 2, 1 and 0 in sums number 0, 1 and 2.
__host__ __device__ constexpr auto one_sweep_phases() {
  return Phases<4>{{{1, 1, 0, 0}, {1, 0, 0, 1}, {0, 1, 0, 1}, {0, 0, 0, 2}}, 3};
}

// Block tile (kM, kN) of 8 warps with (kWarpM, kWarpN) each: all sums, those of a chunk and the fragments
// take most of the 255 registers that a thread can have.
template <class Scheme_>
struct WarpShape {
  using Scheme = Scheme_;
  using Operand = typename Scheme::Operand;
  using Element = typename Scheme::Element;
  using Acc = Accumulator<Element>;
  static constexpr int kM = 128, kN = 128, kWarpM = 64, kWarpN = 32;
  static constexpr int kWarpsM = kM / kWarpM, kWarpsN = kN / kWarpN;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;  // of a warp's tile
  static constexpr int kStrips = kM / 16;
  static constexpr int kStripSums = Scheme::kSums * kFragmentsN * 4;  // a lane, of a strip
  static constexpr int kGroups = 1;  // of warps that hand partial sums over together
  static constexpr bool kByWarps = true, kPaces = false;

  // The bytes of a stage: of one plane, and of all.
  static constexpr int kPlaneA = kM * Scheme::kStageK * int(sizeof(Element));
  static constexpr int kPlaneB = kN * Scheme::kStageK * int(sizeof(Element));
  static constexpr int kImageA = Scheme::kPlanes * kPlaneA, kImageB = Scheme::kPlanes * kPlaneB;
  static constexpr int kSteps = Scheme::kStageK * int(sizeof(Element)) / 32;  // instructions along k

  // The 99 KB that a block may have on GPUs of compute capability 8.6, 8.9 and 12.x.
  static constexpr int kSlotBytes = kImageA + kImageB, kSlots = (98 << 10) / kSlotBytes;
  static_assert(kSlots >= 2);

  struct alignas(128) Shared {
    unsigned char slots[kSlots][kSlotBytes];
    unsigned char not_finite[kStrips][kWarpsN];  // of a warp's share of a strip (warp_kernel.cuh)
  };
  static_assert(sizeof(Shared) <= 99 << 10);
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
