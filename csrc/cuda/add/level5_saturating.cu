// Level 5: enough bytes in flight. By Little's law a multiprocessor must have its share of bandwidth times
// latency in flight. A thread loads two vectors of each operand, or four single elements, before
// it uses the first. Level 4's 2048 threads have 64 KB in flight already, enough for Hopper, so vectors gain
// nothing; single elements (odd rows beside even ones, strided operands) do.
#include "cuda/add/levels.h"
#include "cuda/add/vectors.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void add_saturating(const AddProblem& p, Context& c) { launch_vectors<128, 2>("saturating", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
