// The pairs of tokens and experts, sorted by expert (core/experts.h): a counting sort. Each warp has an equal
// part of the pairs and its own counts in shared memory.
//
//   1. each warp counts the experts of its pairs
//   2. sums over warps, then over experts: where each warp's pairs of each expert go
//   3. each warp goes through its pairs again, 32 at a time, and writes them there. Lanes with the same
//   expert
//      find each other by match_any; the lower lane comes first.
//
// One block sorts few pairs by one launch. For many pairs, a launch before it counts those of each block.
// Equal experts stay in the order of their pairs, so results have the same bits in every run.
#include "core/experts.h"
#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/grouped_problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;
constexpr int kCounts = kMostExperts + 1;  // at least one warp's
constexpr int64_t kPairsOfBlock = 2048;
constexpr unsigned kAll = 0xffffffffu;

// Calls body(pair, expert) in each lane for the 32 pairs of a turn. Lanes without a pair get expert -1. All
// lanes of the warp take part. The next expert is loaded before the last one is used.
template <class Body>
__device__ __forceinline__ void each_pair(const RouteTokens& g, uint32_t begin, uint32_t end, Body&& body) {
  const auto expert = [&](uint32_t pair) {
    if (pair >= end) return -1;
    const uint32_t token = pair / uint32_t(g.chosen);
    return g.expert_of(token, pair - token * uint32_t(g.chosen));
  };
  int next = expert(begin + fresh_lane());
  for (uint32_t first = begin; first < end; first += 32) {
    const uint32_t pair = first + fresh_lane();
    const int own = next;
    next = expert(pair + 32);
    body(pair, own);
  }
}

// The pairs of one expert: in all blocks, in the blocks before this one, and in this one.
struct ExpertCount {
  int32_t all = 0, before = 0, own = 0;
};
// `totals`: the counts of each block; null if there is one.
__device__ __forceinline__ ExpertCount count_of(int expert, int kinds, const int32_t* counts, int warps,
                                                const int32_t* totals) {
  ExpertCount c;
  for (int w = 0; w < warps; ++w) c.own += counts[w * kinds + expert];
  if (totals == nullptr) return c.all = c.own, c;
  for (int block = 0; block < int(gridDim.x); ++block) {
    const int32_t count = totals[block * kinds + expert];
    c.all += count;
    if (block < int(blockIdx.x)) c.before += count;
  }
  return c;
}

// counts[warp][expert] becomes the place of the warp's first pair of the expert.
__device__ __forceinline__ void counts_to_places(const RouteTokens& g, int32_t* counts, int warps,
                                                 const int32_t* totals) {
  FASTGEMM_SHARED int32_t sums[kWarps];
  const int kinds = g.experts + 1, warp = warp_index();
  int32_t before = 0;  // all pairs of the experts before `first`
  for (int first = 0; first < kinds; first += kThreads) {
    const int expert = first + int(threadIdx.x);
    ExpertCount c;
    if (expert < kinds) c = count_of(expert, kinds, counts, warps, totals);
    const int32_t to_here = sum_to_here(c.all);
    if (fresh_lane() == 31) sums[warp] = to_here;
    __syncthreads();
    int32_t place = before + to_here - c.all;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) place += sums[w];
      before += sums[w];
    }
    if (expert < kinds) {
      if (expert < g.experts && blockIdx.x == 0) g.ends[expert] = place + c.all;
      place += c.before;
      for (int w = 0; w < warps; ++w) {
        const int32_t count = counts[w * kinds + expert];
        counts[w * kinds + expert] = place;
        place += count;
      }
    }
    __syncthreads();
  }
}

// `counts_alone`: only writes the block's counts to `totals`.
template <bool counts_alone>
__global__ void __launch_bounds__(kThreads)
    route_tokens_kernel(const __grid_constant__ RouteTokens g, uint32_t pairs, int warps, uint32_t part,
                        int32_t* totals) {
  FASTGEMM_SHARED int32_t counts[kCounts];
  const int kinds = g.experts + 1, warp = warp_index();
  for (int i = int(threadIdx.x); i < warps * kinds; i += kThreads) counts[i] = 0;
  __syncthreads();
  const auto index = uint32_t(int(blockIdx.x) * warps + warp);
  const uint32_t begin = warp < warps ? min(index * part, pairs) : pairs, end = min(begin + part, pairs);
  int32_t* const own = counts + (warp < warps ? warp : 0) * kinds;
  const auto lower = (1u << fresh_lane()) - 1;
  // Adds up the lanes with the same expert; the first of them writes. taken(place) gets the lane's place.
  const auto count = [&](int expert, auto&& taken) {
    const unsigned same = __match_any_sync(kAll, expert);
    const int32_t number = expert >= 0 ? own[expert] : 0;
    __syncwarp();
    if (expert >= 0) taken(number + __popc(same & lower));
    if (expert >= 0 && (same & lower) == 0) own[expert] = number + __popc(same);
    __syncwarp();
  };
  each_pair(g, begin, end, [&](uint32_t, int expert) { count(expert, [](int32_t) {}); });
  __syncthreads();
  if constexpr (counts_alone) {
    for (int expert = int(threadIdx.x); expert < kinds; expert += kThreads)
      totals[int(blockIdx.x) * kinds + expert] = count_of(expert, kinds, counts, warps, nullptr).own;
    return;
  }
  counts_to_places(g, counts, warps, totals);
  each_pair(g, begin, end, [&](uint32_t pair, int expert) {
    count(expert, [&](int32_t place) {
      g.order[place] = int32_t(pair);
      g.rows[place] = int32_t(pair / uint32_t(g.chosen));
      g.places[pair] = place;
    });
  });
}

}  // namespace

void route_tokens(const RouteTokens& g, Context& context) {
  const int kinds = g.experts + 1, warps = std::min(kWarps, kCounts / kinds);
  const auto blocks = unsigned(std::clamp<int64_t>(g.pairs() / kPairsOfBlock, 1, 64));
  const auto pairs = uint32_t(g.pairs());
  const auto part = uint32_t(ceil_div(ceil_div(pairs, 32), int64_t(blocks) * warps) * 32);
  const LaunchShape shape{dim3(blocks), dim3(kThreads)};
  int32_t* totals = nullptr;
  if (blocks > 1) {
    totals = static_cast<int32_t*>(context.allocate(size_t(blocks) * size_t(kinds) * sizeof(int32_t)));
    launch<route_tokens_kernel<true>>("count_experts", shape, context)(g, pairs, warps, part, totals);
  }
  // Without pairs there are still ends to write.
  launch<route_tokens_kernel<false>>("route_tokens", shape, context)(g, pairs, warps, part, totals);
}

}  // namespace fastgemm::FASTGEMM_TARGET
