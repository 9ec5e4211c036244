//   make sim KERNEL=wgmma_wide ARGS='--dtype bf16'
//
// Level 6 on Hopper, fifth step: wider tiles. What changes from wgmma_boxes: the block tile is 128 x 256, and
// one wgmma multiplies 64 x 256 sums.
//   - A tile's rows of A are used for 256 columns instead of 128. One stage of 48 KB has as many products as
//     two stages of 32 KB had, so a quarter fewer bytes are copied per product.
//   - Each instruction reads its operands from shared memory: 64 rows of A and 256 columns of B. Two
//     instructions of 128 columns would read the rows of A twice.
//
// 64 x 256 sums take 128 registers per thread, so only one block fits on a multiprocessor, and nothing
// multiplies while it stores a tile. The next two steps use the shared memory that the second block had.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kBM = 128, kBN = 256, kStages = 3, kBlocks = 1,
              kBoxes = 1;  // wgmma_boxes: kBN = 128, kBlocks = 2
struct WgmmaWide : WgmmaStep<kBM, kBN, kStages, kBlocks, kBoxes> {};

void gemm_wgmma_wide(const GemmProblem& p, Context& c) { run_wgmma_tiles<WgmmaWide>("wgmma_wide", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
