// Level 3: no bank conflicts. It is level 2 with one more element in each row of the tile. A column then lies
// in 32 different banks (fp32), so that a request takes 1 wavefront instead of 32. Rows of elements of 1 and
// 2 bytes are padded by a word.
#include "cuda/transpose/levels.h"
#include "cuda/transpose/shared_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void transpose_padded(const TransposeProblem& p, Context& c) { launch_shared<1>("padded", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
