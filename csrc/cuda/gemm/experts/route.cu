// The pairs of tokens and experts, sorted by expert (core/experts.h): a counting sort by one block, so that
// one launch suffices. Each warp has an equal part of the pairs and its own counts in shared memory.
//
//   1. each warp counts the experts of its pairs
//   2. sums over warps, then over experts: where each warp's pairs of each expert go
//   3. each warp goes through its pairs again, 32 at a time, and writes them there. Lanes with the same
//   expert
//      find each other by match_any; the lower lane comes first.
//
// Equal experts stay in the order of their pairs, so results have the same bits in every run.
#include "core/experts.h"
#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/grouped_problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kCounts = kMostExperts + 1;  // at least one warp's
constexpr unsigned kAll = 0xffffffffu;

// Calls body(pair, expert) in each lane for the 32 pairs of a turn. Lanes without a pair get expert -1. All
// lanes of the warp take part. The next expert is loaded before the last one is used.
template <class Body>
__device__ __forceinline__ void each_pair(const RouteTokens& g, int64_t begin, int64_t end, Body&& body) {
  const auto expert = [&](int64_t pair) {
    if (pair >= end) return -1;
    const int64_t token = int64_t(uint64_t(pair) / unsigned(g.chosen));
    return g.expert_of(token, pair - token * g.chosen);
  };
  int next = expert(begin + fresh_lane());
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t pair = first + fresh_lane();
    const int own = next;
    next = expert(pair + 32);
    body(pair, own);
  }
}

// counts[warp][expert] becomes the place of the warp's first pair of the expert.
__device__ __forceinline__ void counts_to_places(const RouteTokens& g, int32_t* counts, int warps) {
  FASTGEMM_SHARED int32_t sums[kWarps];
  const int kinds = g.experts + 1, warp = warp_index();
  int32_t before = 0;  // all pairs of the experts before `first`
  for (int first = 0; first < kinds; first += kThreads) {
    const int expert = first + int(threadIdx.x);
    int32_t own = 0;
    if (expert < kinds)
      for (int w = 0; w < warps; ++w) own += counts[w * kinds + expert];
    const int32_t to_here = sum_to_here(own);
    if (fresh_lane() == 31) sums[warp] = to_here;
    __syncthreads();
    int32_t place = before + to_here - own;
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) place += sums[w];
      before += sums[w];
    }
    if (expert < kinds) {
      if (expert < g.experts) g.ends[expert] = place + own;
      for (int w = 0; w < warps; ++w) {
        const int32_t count = counts[w * kinds + expert];
        counts[w * kinds + expert] = place;
        place += count;
      }
    }
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads)
    route_tokens_kernel(const __grid_constant__ RouteTokens g, int64_t pairs, int warps, int64_t part) {
  FASTGEMM_SHARED int32_t counts[kCounts];
  const int kinds = g.experts + 1, warp = warp_index();
  for (int i = int(threadIdx.x); i < warps * kinds; i += kThreads) counts[i] = 0;
  __syncthreads();
  const int64_t begin = warp < warps ? min(warp * part, pairs) : pairs;
  const int64_t end = min(begin + part, pairs);
  int32_t* const own = counts + (warp < warps ? warp : 0) * kinds;
  const auto lower = (1u << fresh_lane()) - 1;
  // Adds up the lanes with the same expert; the first of them writes. Returns the lane's number among them.
  const auto count = [&](int expert, auto&& taken) {
    const unsigned same = __match_any_sync(kAll, expert);
    const int32_t number = expert >= 0 ? own[expert] : 0;
    __syncwarp();
    if (expert >= 0) taken(number + __popc(same & lower));
    if (expert >= 0 && (same & lower) == 0) own[expert] = number + __popc(same);
    __syncwarp();
  };
  each_pair(g, begin, end, [&](int64_t, int expert) { count(expert, [](int32_t) {}); });
  __syncthreads();
  counts_to_places(g, counts, warps);
  each_pair(g, begin, end, [&](int64_t pair, int expert) {
    count(expert, [&](int32_t place) {
      g.order[place] = int32_t(pair);
      g.rows[place] = int32_t(uint64_t(pair) / unsigned(g.chosen));
      g.places[pair] = place;
    });
  });
}

}  // namespace

void route_tokens(const RouteTokens& g, Context& context) {
  // Without pairs there are still ends to write.
  const int warps = std::min(kWarps, kCounts / (g.experts + 1));
  const int64_t pairs = g.pairs(), part = ceil_div(ceil_div(pairs, 32), warps) * 32;
  launch<route_tokens_kernel>("route_tokens", {dim3(1), dim3(kThreads)}, context)(g, pairs, warps, part);
}

}  // namespace fastgemm::FASTGEMM_TARGET
