// A narrow product (fast/narrow.cu) and the work of one of its threads. predict/narrow_plan.h distributes it
// over threads.
#pragma once

#include "cuda/gemm/parts/sides.cuh"
#include "cuda/gemm/predict/narrow_plan.h"

namespace fastgemm::FASTGEMM_TARGET {

using plans::kMostNarrowPart;
using plans::kNarrowThreads;
using plans::NarrowPlan;
using plans::Reads;

// X is the wide side, (wide.side, k), and Y the narrow one, (narrow.side, k).
template <class T>
struct NarrowProblem : Sides<T> {
  int batch;

  NarrowProblem(const Gemm<T>& g, int matrices) : Sides<T>(g, matrices), batch(matrices) {}
  plans::NarrowShape shape() const {
    return {batch, this->wide.side, this->narrow.side, this->wide.k, this->wide.k_stride == 1};
  }
};

// plans::NarrowThread as compile-time constants.
template <class T, int narrow, Reads reads>
struct NarrowThread {
  static constexpr plans::NarrowThread kShape{reads, int(sizeof(T)), narrow};
  static constexpr Reads kReads = reads;
  static constexpr bool kVectorRows = kShape.vector_rows();
  static constexpr int kPerLoad = kShape.per_load(), kPerLoadK = kShape.per_load_k();
  static constexpr int kNarrow = narrow, kRowLoads = kShape.row_loads(), kRows = kShape.rows();
  static constexpr int kUnroll = kShape.unroll(), kResident = kShape.resident();
};

template <class T>
bool reads_along_k(const NarrowProblem<T>& p) {
  constexpr int kCount = plans::narrow_load(sizeof(T));
  return takes_loads_of(kCount, true, p.wide, p.batch) && takes_loads_of(kCount, true, p.narrow, p.batch);
}
template <class T>
bool reads_along_rows(const NarrowProblem<T>& p) {
  return takes_loads_of(plans::narrow_load(sizeof(T)), false, p.wide, p.batch);
}

}  // namespace fastgemm::FASTGEMM_TARGET
