// Level 5: enough bytes in flight. Four vectors of each operand a thread, all asked for before the first is
// used: by Little's law 4 TB/s at some 700 ns take 21 KB on their way on each of 132 multiprocessors, and a
// thread now asks for 128 bytes at once instead of 32.
#include "cuda/add/levels.h"
#include "cuda/add/vectors.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void add_saturating(const AddProblem& p, Context& c) { launch_vectors<256, 4>("saturating", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
