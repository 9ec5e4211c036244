// The block tile of GPUs without wgmma, its ring in shared memory, and the order of a stage's products. Warps
// multiply by mma.sync from registers, so a loaded fragment should be used often. A warp loads each plane's
// fragments once per step, and multiplies them by those of all planes that the scheme pairs with theirs. So
// Bf16x6 has twice as many multiply-adds for each loaded element as a plain bf16 product with the same tiles:
// 6 products of 3 planes.
//
//   shared memory   | slot 0            | slot 1            |       a slot: a stage of all planes of A,
//                   | A0 A1 A2 B0 B1 B2 | A0 A1 A2 B0 B1 B2 |       then of B, as the pre-pass wrote it
//
//   Bf16x6, a stage of two steps       phase     0   1   2   3   4     5 .. 9      10 | 11
//                                      a, b      20  02  11  10  01    the same    00   00
//                                      step      0   0   0   0   0     1           0    1
//                                                                                  ^ the turn
//
// A phase is one product of two planes in one step, 16 mma of a warp. Meanwhile the warp loads the fragments
// that the next phase is the first to use, and in early phases also copies a later stage. At the turn all
// fragments of the stage are in registers, so that its slot is free, and the next stage must have arrived. So
// there is one barrier per stage, and the products after it hide the latency of the next stage's first loads.
#pragma once

#include "cuda/device/platform.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Plane a of A times plane b of B in a step of the stage, added to sums number `sum`.
struct Phase {
  int a, b, step, sum;
};

// The phases of a stage. Before phase `turn` the warps turn to the next stage.
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
  // Fragments of A are loaded in the phase that first uses them, or in the phase before it. Fragments of B
  // are loaded in the phase before; for a stage's first phase, this is the last phase of the stage before.
  // This checks that all loads of a stage come before its turn, and that loads of the next stage overwrite no
  // fragment that is still used.
  __host__ __device__ constexpr bool is_right() const {
    for (int t = turn; t < count; ++t)
      if (is_first_of_a(t) || (t > turn && is_first_of_b(t))) return false;
    const Phase &first = phase[0], &last = phase[count - 1];
    return turn > 0 && first.step == 0 && (last.step > 0 || (last.a != first.a && last.b != first.b));
  }
};

// First the small products of all steps, then the largest ones.
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

// All products of planes with a + b = top, for sums number 0, and with a + b = top - 1, for sums number 1.
// They go plane by plane of A, so that one plane of A and one of B are in use at a time.
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

// The products of two planes: those with a + b = 2, 1 and 0 are summed in sums number 0, 1 and 2.
__host__ __device__ constexpr auto one_sweep_phases() {
  return Phases<4>{{{1, 1, 0, 0}, {1, 0, 0, 1}, {0, 1, 0, 1}, {0, 0, 0, 2}}, 3};
}

// Block tile (kM, kN) of 8 warps with (kWarpM, kWarpN) each. All sums, the sums of a chunk and the fragments
// take most of the 255 registers that a thread can have.
template <class Scheme_>
struct WarpShape {
  using Scheme = Scheme_;
  using Operand = typename Scheme::Operand;
  using Element = typename Scheme::Element;
  using Acc = Accumulator<Element>;
  static constexpr bool kLower = false;
  static constexpr int kM = 128, kN = 128, kWarpM = 64, kWarpN = 32;
  static constexpr int kWarpsM = kM / kWarpM, kWarpsN = kN / kWarpN;
  static constexpr int kThreads = 32 * kWarpsM * kWarpsN;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;  // fragments of a warp's tile
  static constexpr int kStrips = kM / 16;
  static constexpr int kStripSums = Scheme::kSums * kFragmentsN * 4;  // sums per lane and strip
  static constexpr int kGroups = 1;  // groups of warps that hand over partial sums together
  static constexpr bool kByWarps = true, kPaces = false;

  // The bytes of a stage: of one plane, and of all planes.
  static constexpr int kPlaneA = kM * Scheme::kStageK * int(sizeof(Element));
  static constexpr int kPlaneB = kN * Scheme::kStageK * int(sizeof(Element));
  static constexpr int kImageA = Scheme::kPlanes * kPlaneA, kImageB = Scheme::kPlanes * kPlaneB;
  static constexpr int kSteps = Scheme::kStageK * int(sizeof(Element)) / 32;  // instructions along k

  // As many slots as fit in the 99 KB that a block may have on compute capability 8.6, 8.9 and 12.x.
  static constexpr int kSlotBytes = kImageA + kImageB, kSlots = (98 << 10) / kSlotBytes;
  static_assert(kSlots >= 2);

  struct alignas(128) Shared {
    unsigned char slots[kSlots][kSlotBytes];
    unsigned char not_finite[kStrips][kWarpsN];  // 1 if a warp's part of a strip is not (warp_kernel.cuh)
  };
  static_assert(sizeof(Shared) <= 99 << 10);
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
