// Level 1: parallelism. One thread adds one element. A warp adds neighbours in a row of out, so that every
// request is one line. No element is used twice, so caches do not help: 12 bytes cross the bus for every fp32
// sum. All that a higher rung can do is to keep more bytes in flight.
#include "cuda/add/levels.h"
#include "cuda/add/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kAddNaiveThreads = 256;

template <class T>
__global__ void __launch_bounds__(kAddNaiveThreads) add_naive_kernel(Add<T> add) {
  const int64_t index = int64_t(blockIdx.x) * kAddNaiveThreads + threadIdx.x;
  const int64_t row = index / add.cols, col = index - row * add.cols;
  if (row < add.rows) *add.out.at(row, col) = add.sum(*add.a.at(row, col), *add.b.at(row, col));
}

void add_naive(const AddProblem& p, Context& context) {
  run_add(p, [&]<class T>(const Add<T>& add) {
    const unsigned blocks = unsigned(ceil_div(add.rows * add.cols, kAddNaiveThreads));
    launch<add_naive_kernel<T>>("naive", {dim3(blocks), dim3(kAddNaiveThreads)}, context)(add);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
