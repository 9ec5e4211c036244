// How decode_planes multiplies: its tile, its rings, and the loop of a team. A team's warps cut weights in
// registers and multiply them from there.
//
//   slots of k   | 0  1  2 | 3  4  5 | 6  7  8 | 9 10 11 | ...   chunks of 3 stages
//   team           0         1         2         0               three teams
//   sum          = chunk 0 + chunk 1 + chunk 2 + ...             in shared memory, added to in turn
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/fast/decode.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"
#include "cuda/gemm/parts/ring.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes::decode {

using Scheme = Bf16x6Invariant;
inline constexpr int kPlanes = Scheme::kPlanes, kStageK = Scheme::kStageK, kRowBytes = 128;
inline constexpr int kSteps = kStageK / 16;  // instructions along k
static_assert(kStageK * int(sizeof(float)) == kRowBytes);
inline constexpr int kTeamWarps = 4;

// A tile is kN rows of A times kColumns columns of B. Each team of four warps computes all columns, and each
// warp kOfWarp of them: at most 16, its own rows of the instruction. Teams take turns with the chunks of k.
template <int N, int columns>
struct Shape {
  static constexpr int kN = N, kColumns = columns, kSums = kN / 2, kOfWarp = columns / kTeamWarps;
  static constexpr int kHalves = kOfWarp > 8 ? 2 : 1;  // halves of a warp's 16 rows that are used
  static_assert(columns % kTeamWarps == 0 && kOfWarp <= 16);
  static constexpr int kTeams = N <= 32 ? 3 : 2, kWarps = kTeams * kTeamWarps, kThreads = 32 * (kWarps + 4);
  // The registers of a multiplying thread and of any other thread. Together they fill the register file.
  static constexpr int kManyRegisters = kTeams == 3 ? 152 : 216, kFewRegisters = kTeams == 3 ? 56 : 72;
  static_assert(kTeams * kManyRegisters + kFewRegisters <= (kTeams + 1) * (65536 / kThreads / 8 * 8));

  static constexpr int kPlaneBytes = kN * kStageK * 2,
                       kRowsBytes = kPlanes * kPlaneBytes;  // bytes per stage of A
  static constexpr int kWeightsBytes = kColumns * kRowBytes, kSumBytes = kSums * 128 * int(sizeof(float));
  static constexpr int kRowsSlots = kTeams == 3 ? 18 : 8;
  static constexpr int kWeightsSlots =
      std::min(36, ((220 << 10) - kRowsSlots * kRowsBytes - kSumBytes) / kWeightsBytes);
  // The slots that are used with chunks of `chunk` stages: a multiple of what all teams take in turn, so that
  // a slot always belongs to the same team, which then sees all phases of its barriers.
  __host__ __device__ static constexpr int used(int slots, int chunk) {
    return slots / (kTeams * chunk) * (kTeams * chunk);
  }
  static_assert(used(kWeightsSlots, Scheme::kMostChunk) > 0 && used(kRowsSlots, Scheme::kMostChunk) > 0);

  struct alignas(1024) Shared {
    unsigned char weights[kWeightsSlots][kWeightsBytes];  // float32
    unsigned char rows[kRowsSlots][kRowsBytes];           // planes, as cut.cuh writes them
    float sum[kSums][32 * kTeamWarps];                    // the teams add to it in turn
    RingBarriers<kWeightsSlots> weights_ring;
    RingBarriers<kRowsSlots> rows_ring;
    Barrier turn[kTeams][kTeamWarps];  // completes when the chunk before the warp's own has been added
    uint32_t largest[kTeams][kColumns], smallest_less_1[kTeams][kColumns];  // Magnitudes
    uint32_t scales[kWarps];  // 1 where the warp cut a column that may need a scale, in any tile of the block
  };
  static_assert(sizeof(Shared) <= 227 << 10);
};

struct Arguments {
  Gemm<float> gemm;
  DecodeTiles tiles;
  const unsigned char* rows;  // the planes of A: [matrix][tile][stage][plane]
  const float* unscale;       // [matrix][row]: the factor that undoes the scale of a row of A
  int rows_of_a;              // rows per matrix, rounded up to whole tiles
  int stages;                 // stages per tile
  int batch_a, batch_b;       // 0 if the batch shares the operand
  int chunk;                  // stages that the tensor cores sum before a promotion

  __host__ __device__ __forceinline__ int chunks() const { return (stages + chunk - 1) / chunk; }
};

// A position in a ring whose first `used` slots are used.
struct SlotPosition {
  int slot, used;
  uint32_t phase;
  __device__ __forceinline__ void advance(int by = 1) {
    slot += by;
    if (slot >= used) slot -= used, phase ^= 1;
  }
};

// Where a thread of a team finds its weights: in column lane / 4 of the warp's columns, and in the column 8
// after it; along k in pairs, as in MmaLayout::a(). Lanes beyond the warp's columns read its last column
// again.
template <class S, Major b_major>
class Weights {
 public:
  __device__ __forceinline__ Weights(int warp, int lane) {
    FASTGEMM_UNROLL
    for (int h = 0; h < S::kHalves; ++h) {
      const int column = column_of(warp, lane, h), k = lane % 4 * 2;
      FASTGEMM_UNROLL
      for (int e = 0; e < kOffsets; ++e)
        offset_[h][e] =
            b_major == Major::k
                ? int(swizzled<Swizzle::bytes128>(uint32_t(column * kRowBytes + k * 4)))
                : column / 32 * (kStageK * kRowBytes) +
                      int(swizzled<Swizzle::bytes128>(uint32_t((k + e) * kRowBytes + column % 32 * 4)));
    }
  }
  __device__ __forceinline__ static int column_of(int warp, int lane, int h) {
    return warp * S::kOfWarp + min(lane / 4 + 8 * h, S::kOfWarp - 1);
  }

  // Loads the words of half h: pairs at k, k + 8, k + 16 and k + 24.
  __device__ __forceinline__ void load(uint32_t (&words)[8], const unsigned char* stage, int h) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      if constexpr (b_major == Major::k) {
        const auto pair = load_vector<Vector<uint32_t, 2>>(stage + (offset_[h][0] ^ 32 * i));
        words[2 * i] = pair[0], words[2 * i + 1] = pair[1];
      } else {
        FASTGEMM_UNROLL
        for (int e = 0; e < 2; ++e)
          words[2 * i + e] = *reinterpret_cast<const uint32_t*>(stage + offset_[h][e] + 8 * i * kRowBytes);
      }
    }
  }

 private:
  static constexpr int kOffsets = b_major == Major::k ? 1 : 2;
  int offset_[S::kHalves][kOffsets];
};

// A team's loop. The products and their order are those of PromotingLoop (multiply.cuh) with the operands
// exchanged: first the small products of all stages of a chunk, then the largest ones. While the tensor cores
// multiply a stage, its team cuts the next one. While a team waits for the tensor cores, the other teams cut.
template <class S, Major b_major>
class Multiplier {
 public:
  __device__ __forceinline__ Multiplier(typename S::Shared& shared, const Arguments& g, int team, int warp,
                                        int lane)
      : shared_(shared),
        g_(g),
        team_(team),
        warp_(warp),
        until_mine_(team),
        weights_(warp, lane),
        rows_(box_descriptor<Major::k, Swizzle::none>(shared.rows[0], S::kN)),
        leader_(lane == 0),
        weights_at_{team * g.chunk, S::used(S::kWeightsSlots, g.chunk), 0},
        rows_at_{team * g.chunk, S::used(S::kRowsSlots, g.chunk), 0},
        turn_(team == 0 ? 1 : 0) {}

  // Multiplies a tile, whose columns of weights are multiplied by their scales first. The team that adds the
  // tile's last chunk calls finish(sum).
  template <class Finish>
  __device__ __forceinline__ void multiply(const float (&scale)[S::kHalves],
                                           Magnitudes (&magnitudes)[S::kHalves], Finish&& finish) {
    const int chunks = g_.chunks();
    int mine = until_mine_;
    FASTGEMM_NO_UNROLL
    for (; mine < chunks; mine += S::kTeams) {
      const bool is_last = mine + 1 == chunks;
      const int count = is_last ? g_.stages - mine * g_.chunk : g_.chunk;
      float chunk[S::kSums];
      static_assert(Scheme::kMostChunk == 3);
      count == 3   ? multiply_chunk<3>(chunk, scale, magnitudes)
      : count == 2 ? multiply_chunk<2>(chunk, scale, magnitudes)
                   : multiply_chunk<1>(chunk, scale, magnitudes);
      for (int i = count; i < g_.chunk; ++i) leave_stage();
      weights_at_.advance((S::kTeams - 1) * g_.chunk), rows_at_.advance((S::kTeams - 1) * g_.chunk);
      add(chunk, mine == 0);
      if (is_last) finish(chunk);
    }
    until_mine_ = mine - chunks;
  }

 private:
  // A thread's part of a stage of weights: the registers of each wgmma.
  struct Cut {
    uint32_t plane[kPlanes][kSteps][4];
  };

  __device__ __forceinline__ void cut(Cut& to, const float (&scale)[S::kHalves],
                                      Magnitudes (&magnitudes)[S::kHalves]) {
    wait_phase(&shared_.weights_ring.full[weights_at_.slot], weights_at_.phase);
    const unsigned char* const stage = shared_.weights[weights_at_.slot];
    FASTGEMM_UNROLL
    for (int h = 0; h < 2; ++h) {
      uint32_t words[8], planes[kPlanes][4];
      if (h >= S::kHalves) {
        FASTGEMM_UNROLL
        for (auto& plane : to.plane) FASTGEMM_UNROLL
        for (auto& a : plane) a[1] = unread_register(), a[3] = unread_register();
        break;
      }
      weights_.load(words, stage, h);
      FASTGEMM_UNROLL
      for (uint32_t& word : words) {
        magnitudes[h].template add<true>(word);
        word = __float_as_uint(__uint_as_float(word) * scale[h]);
      }
      Scheme::cut(words, planes);
      FASTGEMM_UNROLL
      for (int p = 0; p < kPlanes; ++p) FASTGEMM_UNROLL
      for (int i = 0; i < 4; ++i) to.plane[p][i / 2][h + i % 2 * 2] = planes[p][i];
    }
  }

  // chunk = the sum of the products of `stages` stages.
  template <int stages>
  __device__ __forceinline__ void multiply_chunk(float (&chunk)[S::kSums], const float (&scale)[S::kHalves],
                                                 Magnitudes (&magnitudes)[S::kHalves]) {
    int slot[stages];
    Cut part[stages];
    FASTGEMM_UNROLL
    for (int i = 0; i < stages; ++i) {
      cut(part[i], scale, magnitudes);
      wait_phase(&shared_.rows_ring.full[rows_at_.slot], rows_at_.phase);
      slot[i] = rows_at_.slot;
      rows_at_.advance();
      with_registers(part[i], [&](auto&... a) { wgmma_fence(chunk, a...); });
      multiply_all(typename Scheme::Small{}, chunk, part[i], slot[i], i > 0);
      wgmma_commit();
      // The slot is released only now: an arrival does not wait for loads that are under way, but the
      // products do.
      __syncwarp();
      if (leader_) arrive(&shared_.weights_ring.empty[weights_at_.slot]);
      weights_at_.advance();
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < stages; ++i) multiply_all(Products<Product{0, 0}>{}, chunk, part[i], slot[i], true);
    wgmma_commit();
    wgmma_wait<0>(chunk);
    FASTGEMM_UNROLL
    for (int i = 0; i < stages; ++i) {
      with_registers(part[i], [](auto&... a) { wgmma_wait<0>(a...); });
      if (leader_) arrive(&shared_.rows_ring.empty[slot[i]]);
    }
  }

  // Skips a stage beyond k: a tile's last chunk is padded, so that all chunks take the same number of slots.
  __device__ __forceinline__ void leave_stage() {
    wait_phase(&shared_.weights_ring.full[weights_at_.slot], weights_at_.phase);
    wait_phase(&shared_.rows_ring.full[rows_at_.slot], rows_at_.phase);
    __syncwarp();
    if (leader_) {
      arrive(&shared_.weights_ring.empty[weights_at_.slot]);
      arrive(&shared_.rows_ring.empty[rows_at_.slot]);
    }
    weights_at_.advance(), rows_at_.advance();
  }

  // chunk += the sum of the chunks before it, after the team before has added its own. The sum is stored even
  // for a tile's last chunk, where nobody reads it: a store comes after the loads, so the next team cannot
  // begin before these are done.
  __device__ __forceinline__ void add(float (&chunk)[S::kSums], bool is_first) {
    float* const sum = &shared_.sum[0][threadIdx.x % 128];
    wait_phase(&shared_.turn[team_][warp_], turn_);
    turn_ ^= 1;
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; ++i) chunk[i] = (is_first ? 0.f : sum[i * 128]) + chunk[i];
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; ++i) sum[i * 128] = chunk[i];
    __syncwarp();
    if (leader_) arrive(&shared_.turn[team_ + 1 == S::kTeams ? 0 : team_ + 1][warp_]);
  }

  template <class Body>
  __device__ __forceinline__ static void with_registers(Cut& cut, Body&& body) {
    static_assert(kPlanes == 3 && kSteps == 2);
    auto& p = cut.plane;
    body(p[0][0], p[0][1], p[1][0], p[1][1], p[2][0], p[2][1]);
  }

  template <Product... products>
  __device__ __forceinline__ void multiply_all(Products<products...>, float (&chunk)[S::kSums],
                                               const Cut& cut, int slot, bool accumulate) const {
    const MatrixDescriptor rows = rows_.at(slot * S::kRowsBytes);
    const auto multiply = [&](Product p) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kSteps; ++i)
        wgmma<BFloat16>(chunk, cut.plane[p.b][i],
                        rows.at(p.a * S::kPlaneBytes + box_step<Major::k, Swizzle::none>(S::kN, i)),
                        accumulate || i > 0);
    };
    ((multiply(products), accumulate = true), ...);
  }

  typename S::Shared& shared_;
  const Arguments& g_;
  int team_, warp_;
  int until_mine_;  // chunks of the next tile that come before the team's first one
  Weights<S, b_major> weights_;
  MatrixDescriptor rows_;
  bool leader_;  // this lane arrives at barriers for its warp
  SlotPosition weights_at_, rows_at_;
  uint32_t turn_;  // the phase of the team's turn
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes::decode
