// Level 5: enough bytes in flight. By Little's law 4 TB/s at some 700 ns take 21 KB on their way on each of
// 132 multiprocessors. A thread asks for two vectors of each operand, or four single elements, before it uses
// the first. On an H200 level 4's 2048 threads ask for 64 KB already: the two are within 1 % of each other,
// and of the bus. Single elements (odd rows beside even ones, strided operands) gain 14 %.
#include "cuda/add/levels.h"
#include "cuda/add/vectors.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void add_saturating(const AddProblem& p, Context& c) { launch_vectors<128, 2>("saturating", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
