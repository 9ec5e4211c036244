// Level 5: enough bytes in flight. By Little's law, the bytes in flight on a multiprocessor must be its share
// of the bandwidth times the latency. A thread loads two vectors of each operand, or four single elements,
// before it uses the first. The 2048 threads of level 4 already have 64 KB in flight, which is enough for
// Hopper, so vectors gain nothing. Single elements gain: operands with strides, or rows that begin at
// different distances from a boundary.
#include "cuda/add/levels.h"
#include "cuda/add/vectors.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void add_saturating(const AddProblem& p, Context& c) { launch_vectors<128, 2>("saturating", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
