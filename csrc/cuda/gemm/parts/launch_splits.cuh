// Split-K on the host's side: launches a kernel whose blocks may share k, and the one that then adds.
// run(result, columns) launches the kernel, whose split s of matrix i writes matrix number s * batch + i of
// `result`, `columns` elements a row: the product's own C without splits, the workspace with them.
#pragma once

#include "cuda/gemm/parts/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// An epilogue is left to run() without splits.
template <class Finish = AsAdded, class T, class Run>
void launch_splits(const Gemm<T>& g, int batch, int splits, const Epilogue& epilogue, Context& context,
                   Run&& run) {
  if (splits <= 1) return run(g.result, g.n);
  const auto sums = split_sums(g, batch, splits, context);
  run(result_in<T>(sums), sums.pitch);
  add_splits<Finish>(sums, g, context, epilogue);
}

}  // namespace fastgemm::FASTGEMM_TARGET
