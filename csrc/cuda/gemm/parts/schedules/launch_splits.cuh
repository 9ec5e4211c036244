// Split-K on the host: launches a kernel whose blocks may share k, and then the kernel that adds their sums.
// run(result, columns) launches the former. Split s of matrix i writes matrix number s * batch + i of
// `result`, with `columns` elements per row. `result` is C without splits, and the workspace with splits.
#pragma once

#include "cuda/gemm/parts/schedules/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Without splits run() applies the epilogue.
template <class Finish = AsAdded, class T, class Run>
void launch_splits(const Gemm<T>& g, int batch, int splits, const Epilogue& epilogue, Context& context,
                   Run&& run) {
  if (splits <= 1) return run(g.result, g.n);
  const auto sums = split_sums(g, batch, splits, context);
  run(result_in<T>(sums), sums.pitch);
  add_splits<Finish>(sums, g, context, epilogue);
}

}  // namespace fastgemm::FASTGEMM_TARGET
