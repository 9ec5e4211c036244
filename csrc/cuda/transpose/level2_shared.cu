// Level 2: reuse in fast memory. A block reads a tile of 32 x 32 elements along the rows of src, turns it in
// shared memory and writes it along the rows of dst: 4 sectors a request on both sides instead of 4 and 32
// (fp32). What is left: the tile's rows are 128 bytes long, as many as shared memory has banks, so that the
// 32 lanes which read a column of it all meet in one bank and are served one after the other (8-byte
// elements: two banks, 16-byte: four; narrower ones meet in fewer lanes).
#include "cuda/transpose/levels.h"
#include "cuda/transpose/shared_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void transpose_shared(const TransposeProblem& p, Context& c) { launch_shared<0>("shared", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
