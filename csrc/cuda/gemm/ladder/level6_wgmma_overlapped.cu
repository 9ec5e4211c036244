//   make sim KERNEL=wgmma_overlapped ARGS='--dtype bf16'
//
// Level 6 on Hopper, seventh step: stores that overlap. What changes from wgmma_deep: a warp has two boxes,
// and writes one while the tensor memory accelerator reads the other.
//
//   sums -> box 0 -> TMA store ------------>                    columns 0 to 63 of C (bfloat16)
//           sums -> box 1 -> TMA store ------------>            columns 64 to 127
//                   wait until box 0 is read, sums -> box 0 -> TMA store ...
//
// The last boxes of a tile are stored while the next tile is multiplied. If K is large, this step gains less
// than 1 %: with one box, a warp waits three times per tile until the box is read, and a tile takes 65,000
// cycles at K = 4096.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kBM = 128, kBN = 256, kStages = 4, kBlocks = 1, kBoxes = 2;  // wgmma_deep: kBoxes = 1
struct WgmmaOverlapped : WgmmaStep<kBM, kBN, kStages, kBlocks, kBoxes> {};

void gemm_wgmma_overlapped(const GemmProblem& p, Context& c) {
  run_wgmma_tiles<WgmmaOverlapped>("wgmma_overlapped", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
