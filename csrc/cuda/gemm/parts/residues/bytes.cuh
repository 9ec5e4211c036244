// Products of bytes along k on GPUs without wgmma, by the tiles of mma_sync (mma_sync.cu).
#pragma once

#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

void multiply_bytes(const Gemm<int8_t>&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET::residues
