// The tiles that are not computed by residues.
#pragma once

#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/residues/selection.cuh"

namespace fastgemm::FASTGEMM_TARGET::residues {

// Computes the tiles of a product that the selection leaves, in float64 (dmma.cu).
void multiply_rest(const Gemm<double>&, const Selection&, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET::residues
