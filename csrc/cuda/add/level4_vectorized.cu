// Level 4: wide accesses. A thread loads 16 bytes of each operand, which takes a quarter of level 1's
// instructions for fp32, a sixteenth for bytes. Vectors are counted from the 16-byte boundary at or before
// the start of each row of out. So views need not begin at a boundary: vectors work if all begin at the same
// distance from one. They also work for operands that are broadcast along rows or columns. With other strides
// single elements are added, 32 neighbours by each warp.
#include "cuda/add/levels.h"
#include "cuda/add/vectors.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void add_vectorized(const AddProblem& p, Context& c) { launch_vectors<256, 1>("vectorized", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
