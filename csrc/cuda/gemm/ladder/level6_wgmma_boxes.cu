//   make sim KERNEL=wgmma_boxes ARGS='--dtype bf16'
//
// Level 6 on Hopper, fourth step: the hardware stores. What changes from wgmma_persistent: a warp writes its
// finished sums, rounded, to a box of 16 rows x 128 bytes in shared memory, and the tensor memory accelerator
// (TMA) stores the box to C (store_boxes() in parts/wgmma_tiles.cuh).
//   - C is written in lines of 128 bytes: 64 sectors for 2 KB. With plain stores a thread stores one element
//     of 2 bytes at a time, so a warp fills only 8 of the 32 bytes of each sector: 2 KB take 32 requests of 8
//     sectors.
//   - The last box of a tile is stored while the next tile is multiplied.
//
// Tile, stages and the two blocks of a multiprocessor are those of wgmma_persistent. A multiprocessor has 228
// KB of shared memory. A block has 96 KB of stages, 16 KB of boxes (2 KB for each of 8 warps), 1 KB with its
// barriers and 1 KB that CUDA takes: 114 KB. So two blocks leave no room for a second box. A warp waits until
// the TMA has read its box before it writes the next part to it.
// If the TMA cannot store C, or if there is a c to add (map_result()), results are stored as before.
#include "cuda/gemm/parts/wgmma_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kBM = 128, kBN = 128, kStages = 3, kBlocks = 2, kBoxes = 1;
struct WgmmaBoxes : WgmmaStep<kBM, kBN, kStages, kBlocks, kBoxes> {
  static constexpr bool kChosen = true;
};

void gemm_wgmma_boxes(const GemmProblem& p, Context& c) { run_wgmma_tiles<WgmmaBoxes>("wgmma_boxes", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
