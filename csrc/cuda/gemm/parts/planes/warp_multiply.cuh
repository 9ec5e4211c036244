// The main loop on GPUs without wgmma: the warps of a block copy the stages of a tile by cp.async and
// multiply them by mma.sync, in the order of warp_shape.cuh.
//
// The sums are those of multiply.cuh. In schemes of floating point the tensor cores sum a stage's products,
// small ones first, and this sum is added to a sum in registers, rounded to nearest. Int8x10 takes two
// sweeps. A chunk is always one stage here. Adding the chunks costs little, because the additions are issued
// while the tensor cores are busy: in Bf16x6 there is one for three mma instructions. A longer chunk would
// have to keep its stages in shared memory.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gemm/parts/planes/warp_shape.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// The fragments of a stage. A fragment is in registers only between its load and its last use.
template <class S>
struct WarpFragments {
  uint32_t a[S::kSteps][S::Scheme::kPlanes][S::kFragmentsM][4];
  uint32_t b[S::kSteps][S::Scheme::kPlanes][S::kFragmentsN / 2][4];  // each holds two fragments of 8 columns
};

// Copies a thread's units of a tile's stages: units of 16 bytes of the first `planes` planes of A, then of B.
// Images and slots have the same order. After the last stage that stage is copied again, which saves a
// branch.
template <class S, int planes>
class StageCopies {
  static constexpr int kUnit = S::kThreads * 16;  // bytes that the block copies at a time
  static constexpr int kUnitsA = planes * S::kPlaneA / kUnit;

 public:
  static constexpr int kUnits = kUnitsA + planes * S::kPlaneB / kUnit;
  static_assert(S::kPlaneA % kUnit == 0 && S::kPlaneB % kUnit == 0);

  __device__ __forceinline__ StageCopies(const unsigned char* a, const unsigned char* b, int stages)
      : a_(a + threadIdx.x * 16), b_(b + threadIdx.x * 16), left_(stages) {}

  // Copies unit i of the stage.
  __device__ __forceinline__ void copy(unsigned char* slot, int i) const {
    slot += threadIdx.x * 16;
    if (i < kUnitsA)
      copy_async<16>(slot + i * kUnit, a_ + i * kUnit);
    else
      copy_async<16>(slot + S::kImageA + (i - kUnitsA) * kUnit, b_ + (i - kUnitsA) * kUnit);
  }
  __device__ __forceinline__ void advance() {
    if (--left_ > 0) a_ += S::kImageA, b_ += S::kImageB;
  }
  // Whether any copied stage is still to be multiplied: stages are copied kSlots - 1 stages ahead.
  __device__ __forceinline__ bool is_any_left() const { return left_ > 1 - S::kSlots; }

 private:
  const unsigned char *a_, *b_;
  int left_;
};

template <class S>
inline constexpr auto kPromotingPhases = promoting_phases<S::kSteps>(typename S::Scheme::Small{});

// A warp's products of a tile.
template <class S>
class WarpLoop {
  using Scheme = typename S::Scheme;
  using Element = typename S::Element;

 public:
  // [row of fragments][sum and column of fragments][element]; a fragment is (16, 8).
  using Sums = typename S::Acc[S::kFragmentsM][Scheme::kSums * S::kFragmentsN][4];

  __device__ __forceinline__ WarpLoop(typename S::Shared& shared, int warp) : slots_(shared.slots[0]) {
    const int lane = fresh_lane(), low = lane / 8 % 2, high = lane / 16;
    constexpr int kUnitA = S::kM * 16, kUnitB = S::kN * 16;  // a unit along k of all rows
    lane_a_ = warp % S::kWarpsM * (S::kWarpM * 16) + high * kUnitA + low * (8 * 16) + lane % 8 * 16;
    lane_b_ =
        S::kImageA + warp / S::kWarpsM * (S::kWarpN * 16) + low * kUnitB + high * (8 * 16) + lane % 8 * 16;
  }

  // sum = the product of `stages` stages, whose images begin at a and b.
  __device__ __forceinline__ void multiply(Sums& sum, const unsigned char* a, const unsigned char* b,
                                           int stages) {
    if constexpr (Scheme::kLoop == Loop::promoting)
      multiply_promoting(sum, a, b, stages);
    else if constexpr (Scheme::kLoop == Loop::sweeping)
      multiply_sweeping(sum, a, b, stages);
    else
      multiply_once(sum, a, b, stages);
  }

 private:
  using OneSum = typename S::Acc[S::kFragmentsM][S::kFragmentsN][4];

  // Calls body(i, j, e) for all sums in row i of fragments.
  template <class Body>
  __device__ __forceinline__ static void for_row(int i, Body&& body) {
    FASTGEMM_UNROLL
    for (int j = 0; j < S::kFragmentsN; ++j) {
      FASTGEMM_UNROLL
      for (int e = 0; e < 4; ++e) body(i, j, e);
    }
  }
  template <class Body>
  __device__ __forceinline__ static void for_all(Body&& body) {
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragmentsM; ++i) for_row(i, body);
  }

  // A row of fragments is promoted while the last product of the next row is computed. (Promoting it during
  // the next stage's first product would hide the latency, too, but then the compiler holds two chunks in
  // registers.)
  __device__ __forceinline__ void multiply_promoting(Sums& sum, const unsigned char* a,
                                                     const unsigned char* b, int stages) {
    constexpr int kLast = kPromotingPhases<S>.kCount - 1;
    OneSum chunk[1];
    for_all([&](int i, int j, int e) { sum[i][j][e] = chunk[0][i][j][e] = 0; });
    const auto promote = [&](int row) {
      for_row(row, [&](int i, int j, int e) { sum[i][j][e] += chunk[0][i][j][e]; });
    };
    sweep<kPromotingPhases<S>, Scheme::kPlanes>(
        chunk, a, b, stages,
        [&]<int t>(int row) {
          if constexpr (t == 0) for_row(row, [&](int i, int j, int e) { chunk[0][i][j][e] = 0; });
          if constexpr (t == kPromotingPhases<S>.turn && Scheme::kSmallUnit != 1.f)
            for_row(row, [&](int i, int j, int e) { chunk[0][i][j][e] *= Scheme::kSmallUnit; });
          if constexpr (t == kLast) {
            if (row > 0) promote(row - 1);
          }
        },
        [&] { promote(S::kFragmentsM - 1); });
  }

  // Two sweeps over k, modulo 2^32. The first computes S3 and S2, which are joined to S = 2^16 S3 + 2^8 S2.
  // The second adds S1 to S and computes S0. The result is 2^8 S + S0.
  __device__ __forceinline__ void multiply_sweeping(Sums& sum, const unsigned char* a, const unsigned char* b,
                                                    int stages) {
    const auto none = []<int>(int) {};
    OneSum sums[2];
    for_all([&](int i, int j, int e) { sums[0][i][j][e] = sums[1][i][j][e] = 0; });
    sweep<sweeping_phases<3>(), 4>(sums, a, b, stages, none, [] {});
    for_all([&](int i, int j, int e) {
      sums[0][i][j][e] = ((sums[0][i][j][e] << 8) + sums[1][i][j][e]) << 8, sums[1][i][j][e] = 0;
    });
    sweep<sweeping_phases<1>(), 2>(sums, a, b, stages, none, [] {});
    for_all([&](int i, int j, int e) { sum[i][j][e] = (sums[0][i][j][e] << 8) + sums[1][i][j][e]; });
  }

  // One sweep over k.
  __device__ __forceinline__ void multiply_once(Sums& sum, const unsigned char* a, const unsigned char* b,
                                                int stages) {
    OneSum sums[3];
    for_all([&](int i, int j, int e) { sums[0][i][j][e] = sums[1][i][j][e] = sums[2][i][j][e] = 0; });
    sweep<one_sweep_phases(), 2>(sums, a, b, stages, []<int>(int) {}, [] {});
    for_all([&](int i, int j, int e) {
      FASTGEMM_UNROLL
      for (int s = 0; s < 3; ++s) sum[i][s * S::kFragmentsN + j][e] = sums[s][i][j][e];
    });
  }

  // Multiplies the first `planes` planes of all stages. Calls before.operator()<t>(i) before the products of
  // phase t for row i of fragments, and after() after the products of a stage.
  template <auto phases, int planes, int N, class Before, class After>
  __device__ __forceinline__ void sweep(OneSum (&sums)[N], const unsigned char* a, const unsigned char* b,
                                        int stages, const Before& before, const After& after) {
    static_assert(phases.is_right());
    StageCopies<S, planes> copies(a, b, stages);
    wait_async_copies<0>();
    __syncthreads();  // the slots are free
    FASTGEMM_UNROLL
    for (int slot = 0; slot < S::kSlots - 1; ++slot) {
      FASTGEMM_UNROLL
      for (int i = 0; i < copies.kUnits; ++i) copies.copy(slots_ + slot * S::kSlotBytes, i);
      commit_async_copies();
      copies.advance();
    }
    wait_async_copies<S::kSlots - 2>();
    __syncthreads();
    WarpFragments<S> fragments;
    now_ = slots_, free_ = slots_ + (S::kSlots - 1) * S::kSlotBytes;
    FASTGEMM_UNROLL
    for (int i = S::kFragmentsM - kAhead; i < S::kFragmentsM; ++i)
      load_ahead<phases, phases.kCount - 1>(fragments, i);
    FASTGEMM_NO_UNROLL
    do {
      [&]<int... t>(std::integer_sequence<int, t...>) {
        (run<phases, t>(sums, fragments, copies, before), ...);
      }(std::make_integer_sequence<int, phases.kCount>{});
      after();
    } while (copies.is_any_left());
  }

  template <auto phases, int t, int N, class Copies, class Before>
  __device__ __forceinline__ void run(OneSum (&sums)[N], WarpFragments<S>& fragments, Copies& copies,
                                      const Before& before) {
    constexpr Phase phase = phases.phase[t];
    if constexpr (t == phases.turn) {
      commit_async_copies();
      copies.advance();
      free_ = now_;
      now_ = now_ == slots_ + (S::kSlots - 1) * S::kSlotBytes ? slots_ : now_ + S::kSlotBytes;
      wait_async_copies<S::kSlots - 2>();
      __syncthreads();  // all may read the next stage, and all have read this one
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kFragmentsM; ++i) {
      load_ahead<phases, t>(fragments, i);
      before.template operator()<t>(i);
      FASTGEMM_UNROLL
      for (int step = 0; step < S::kFragmentsN; ++step) {
        const int j =
            i % 2 ? S::kFragmentsN - 1 - step : step;  // serpentine order: neighbours share an operand
        const uint32_t(&b)[4] = fragments.b[phase.step][phase.b][j / 2];
        using Multiplied = typename Scheme::template Multiplied<Product{phase.a, phase.b}>;
        mma<Multiplied>(sums[phase.sum][i][j], fragments.a[phase.step][phase.a][i], b[j % 2 * 2],
                        b[j % 2 * 2 + 1]);
      }
      // Two copies per phase: more at a time would fill the queue to shared memory.
      constexpr int kEvery = S::kFragmentsM / 2;
      static_assert(copies_end<Copies>(kEvery) <= phases.turn);
      const int unit = (t * S::kFragmentsM + i) / kEvery;
      if (i % kEvery == kEvery - 1 && unit < Copies::kUnits) copies.copy(free_, unit);
    }
  }

  // The phase after the last one that copies.
  template <class Copies>
  __host__ __device__ static constexpr int copies_end(int every) {
    const int each = S::kFragmentsM / every;
    return (Copies::kUnits + each - 1) / each;
  }

  // Called before the products of row i in phase t. Loads the fragments that are used for the first time
  // kAhead rows later, in this phase or the next one. All fragments of B are used from the first row on.
  template <auto phases, int t>
  __device__ __forceinline__ void load_ahead(WarpFragments<S>& fragments, int i) const {
    constexpr int kNext = (t + 1) % phases.kCount;
    static_assert(S::kFragmentsN / 2 <= kAhead && kAhead < S::kFragmentsM);
    const int later = i + kAhead - S::kFragmentsM;  // a row of the next phase
    if (later < 0) return load_a<phases, t>(fragments, i + kAhead);
    load_a<phases, kNext>(fragments, later);
    load_b<phases, kNext>(fragments, later);
  }
  template <auto phases, int t>
  __device__ __forceinline__ void load_a(WarpFragments<S>& fragments, int i) const {
    constexpr Phase phase = phases.phase[t];
    if constexpr (phases.is_first_of_a(t))
      load_matrices<4>(fragments.a[phase.step][phase.a][i],
                       now_ + lane_a_ + phase.a * S::kPlaneA + phase.step * (2 * S::kM * 16) + i * (16 * 16));
  }
  template <auto phases, int t>
  __device__ __forceinline__ void load_b(WarpFragments<S>& fragments, int i) const {
    constexpr Phase phase = phases.phase[t];
    if constexpr (phases.is_first_of_b(t)) {
      if (i < S::kFragmentsN / 2)
        load_matrices<4>(
            fragments.b[phase.step][phase.b][i],
            now_ + lane_b_ + phase.b * S::kPlaneB + phase.step * (2 * S::kN * 16) + i * (16 * 16));
    }
  }

  static constexpr int kAhead = 2;  // rows of fragments, 4 mma each

  unsigned char* slots_;
  unsigned char *now_, *free_;  // the slot that is multiplied, and the slot that is copied to
  int lane_a_, lane_b_;         // offsets in a slot of the lane's row for ldmatrix
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
