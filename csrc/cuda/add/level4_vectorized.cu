// Level 4: wide accesses. A thread moves 16 bytes of each operand: a quarter of level 1's instructions for
// fp32, a sixteenth for bytes. Vectors are counted from the boundary before each row of out, so that views
// which start anywhere, but all at the same distance from a boundary, still move by vectors, as do operands
// broadcast along either side. Other strides are moved element by element, 32 neighbours a warp.
#include "cuda/add/levels.h"
#include "cuda/add/vectors.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void add_vectorized(const AddProblem& p, Context& c) { launch_vectors<256, 1>("vectorized", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
