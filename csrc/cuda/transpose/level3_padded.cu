// Level 3: no conflicts. Level 2 with one more element in each row of the tile, so that a column of it lies
// in 32 different banks (fp32): 1 wavefront a request instead of 32. Elements of 1 and 2 bytes are padded by
// a word.
#include "cuda/transpose/levels.h"
#include "cuda/transpose/shared_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void transpose_padded(const TransposeProblem& p, Context& c) { launch_shared<1>("padded", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
