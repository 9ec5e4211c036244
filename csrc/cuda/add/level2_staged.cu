// Level 2: both operands go through shared memory, as the tiles of a product do. In a product every element
// is used many times. Here each element is used once, by the thread that loaded it. So staging adds two
// stores, two loads and a barrier, and the same bytes cross the same bus. The lesson: fast memory pays only
// where data is used again.
//
// The pitfall staged_transposed uses tiles of 32 x 32 with the indices [threadIdx.x][threadIdx.y], so that a
// warp goes down a column. A request to global memory then has 32 sectors where 4 would do (fp32), and in
// shared memory all lanes access the same bank.

#include "core/min_max.h"
#include "cuda/add/levels.h"
#include "cuda/add/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kStagedThreads = 256;

template <class T>
__global__ void __launch_bounds__(kStagedThreads) add_staged_kernel(Add<T> add) {
  FASTGEMM_SHARED T staged_a[kStagedThreads];
  FASTGEMM_SHARED T staged_b[kStagedThreads];
  const int64_t index = int64_t(blockIdx.x) * kStagedThreads + threadIdx.x;
  const int64_t row = index / add.cols, col = index - row * add.cols;
  const bool inside = row < add.rows;
  if (inside) {
    staged_a[threadIdx.x] = *add.a.at(row, col);
    staged_b[threadIdx.x] = *add.b.at(row, col);
  }
  __syncthreads();
  if (inside) *add.out.at(row, col) = add.sum(staged_a[threadIdx.x], staged_b[threadIdx.x]);
}

void add_staged(const AddProblem& p, Context& context) {
  run_add(p, [&]<class T>(const Add<T>& add) {
    const unsigned blocks = unsigned(ceil_div(add.rows * add.cols, kStagedThreads));
    launch<add_staged_kernel<T>>("staged", {dim3(blocks), dim3(kStagedThreads)}, context)(add);
  });
}

constexpr int kStagedTile = 32;

// A single row is treated as rows of `width` elements.
template <class T>
__global__ void __launch_bounds__(kStagedTile* kStagedTile)
    add_staged_transposed_kernel(Add<T> add, int64_t width, int64_t tiles_across) {
  FASTGEMM_SHARED T staged_a[kStagedTile][kStagedTile];
  FASTGEMM_SHARED T staged_b[kStagedTile][kStagedTile];
  const int64_t row = blockIdx.x / tiles_across * kStagedTile + threadIdx.x;
  const int64_t col = blockIdx.x % tiles_across * kStagedTile + threadIdx.y, index = row * width + col;
  const bool inside = col < width && index < add.rows * add.cols;
  const int64_t i = add.rows == 1 ? 0 : row, j = add.rows == 1 ? index : col;
  if (inside) {
    staged_a[threadIdx.x][threadIdx.y] = *add.a.at(i, j);
    staged_b[threadIdx.x][threadIdx.y] = *add.b.at(i, j);
  }
  __syncthreads();
  if (inside)
    *add.out.at(i, j) = add.sum(staged_a[threadIdx.x][threadIdx.y], staged_b[threadIdx.x][threadIdx.y]);
}

void add_staged_transposed(const AddProblem& p, Context& context) {
  run_add(p, [&]<class T>(const Add<T>& add) {
    const int64_t width = add.rows == 1 ? std::min<int64_t>(add.cols, 1024) : add.cols;
    const int64_t across = ceil_div(width, kStagedTile);
    const int64_t down = ceil_div(ceil_div(add.rows * add.cols, width), kStagedTile);
    const LaunchShape shape{dim3(unsigned(across * down)), dim3(kStagedTile, kStagedTile)};
    launch<add_staged_transposed_kernel<T>>("staged_transposed", shape, context)(add, width, across);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
