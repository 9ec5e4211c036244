// Level 2: reuse in fast memory. A block reads a tile of 32 x 32 elements along the rows of src, transposes
// it in shared memory and writes it along the rows of dst. In fp32 reads and writes then have 4 sectors per
// request, instead of 4 and 32. What remains is a bank conflict: the tile's rows are 128 bytes long, the
// width of all 32 banks. So the 32 lanes that read a column all access one bank, and are served one after
// another. (Elements of 8 bytes lie in two banks, of 16 bytes in four. With narrower elements fewer lanes
// conflict.)
#include "cuda/transpose/levels.h"
#include "cuda/transpose/shared_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

void transpose_shared(const TransposeProblem& p, Context& c) { launch_shared<0>("shared", p, c); }

}  // namespace fastgemm::FASTGEMM_TARGET
