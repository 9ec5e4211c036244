//   make sim KERNEL=wgmma_deep ARGS='--dtype bf16'
//
// Level 6 on Hopper, sixth step: more bytes in flight. What changes from wgmma_wide: the ring has four stages
// instead of three. While one stage is multiplied, 144 KB are being copied instead of 96 KB, and while the
// consumers store a tile, the producer fills four stages of the next one.
//
// This step gains less than 1 %: multiplying a stage takes about 1,000 cycles, so two stages in flight
// already hide the latency of a copy. wgmma_specialized needs the fourth stage, because it stores a tile
// between the products of the next one.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kBM = 128, kBN = 256, kStages = 4, kBlocks = 1, kBoxes = 1;  // wgmma_wide: kStages = 3
struct WgmmaDeep : WgmmaStep<kBM, kBN, kStages, kBlocks, kBoxes> {};

void gemm_wgmma_deep(const GemmProblem& p, Context& c) { run_wgmma_tiles<WgmmaDeep>("wgmma_deep", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
