// Level 2: both operands pass through shared memory, as the tiles of a product do. There every element is
// used many times; here each is used once, by the thread that brought it, so that staging adds two stores,
// two loads and a barrier to the same bytes on the same bus: reuse first, then fast memory.
//
// The pitfall staged_transposed is the same with the indices of a tile exchanged, [threadIdx.x][threadIdx.y]:
// a warp walks down a column, 32 sectors a request in global memory (fp32: 4 would do), and its lanes all
// meet in one bank of shared memory.
#include "cuda/add/levels.h"
#include "cuda/add/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kStagedTile = 32, kStagedRows = 8;

template <class T, bool exchanged>
__global__ void __launch_bounds__(kStagedTile* kStagedRows)
    add_staged_kernel(Add<T> add, int64_t tiles_across) {
  constexpr int kHigh = exchanged ? kStagedTile : kStagedRows, kWide = exchanged ? kStagedRows : kStagedTile;
  constexpr int kPitch = kStagedTile;
  FASTGEMM_SHARED T staged_a[kHigh][kPitch], staged_b[kHigh][kPitch];  // (8, 32), or (32, 8) of rows as long
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const int i = exchanged ? x : y, j = exchanged ? y : x;
  const int64_t row = blockIdx.x / tiles_across * kHigh + i, col = blockIdx.x % tiles_across * kWide + j;
  const bool inside = row < add.rows && col < add.cols;
  if (inside) {
    staged_a[i][j] = *add.a.at(row, col);
    staged_b[i][j] = *add.b.at(row, col);
  }
  __syncthreads();
  if (inside) *add.out.at(row, col) = add.sum(staged_a[i][j], staged_b[i][j]);
}

template <bool exchanged>
void launch_staged(const char* name, const AddProblem& p, Context& context) {
  run_add(p, [&]<class T>(const Add<T>& add) {
    const int64_t across = ceil_div(add.cols, exchanged ? kStagedRows : kStagedTile);
    const int64_t down = ceil_div(add.rows, exchanged ? kStagedTile : kStagedRows);
    const LaunchShape shape{dim3(unsigned(across * down)), dim3(kStagedTile, kStagedRows)};
    launch<add_staged_kernel<T, exchanged>>(name, shape, context)(add, across);
  });
}

void add_staged(const AddProblem& p, Context& c) { launch_staged<false>("staged", p, c); }
void add_staged_transposed(const AddProblem& p, Context& c) {
  launch_staged<true>("staged_transposed", p, c);
}

}  // namespace fastgemm::FASTGEMM_TARGET
