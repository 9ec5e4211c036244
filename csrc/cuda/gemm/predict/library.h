// How long the vendor's library takes. No model knows its kernels, so it is measured: a model of the counts
// (counts.h) says how its time grows, and measured points nearby say how far that is off.
#pragma once

#include <array>
#include <span>

#include "cuda/gemm/predict/predict.h"

namespace fastgemm::predict {

// Where a product lies among others: what distances between them are made of.
inline constexpr int kAxes = 15;
using Place = std::array<float, kAxes>;
Place place_of(const GemmProblem&);

// The library's time at a problem that was measured on the GPU at hand.
struct LibraryPoint {
  GemmProblem problem;
  double seconds;
};
// Measurements of one type and precision on the GPU of this number, with the constants of their model, in
// place of those that ship with fastgemm.
void set_library(uint64_t gpu, DType, Precision, const Costs&, std::span<const LibraryPoint>, const Gpu&);
void reset_library();

// What is known of a GPU.
enum class Knowledge {
  predicted,  // nothing was measured: predictions alone, and the library is taken to reach the GPU's limits
  measured,   // kernels and library were measured on this type of GPU; constants ship with fastgemm
  tuned,      // `fastgemm tune` measured this very GPU
};
Knowledge knowledge_of(const Gpu&);

// Seconds of the library's product. Where it was not measured: those that it cannot go below, by the rate of
// the units that it has to use and by the bandwidth of memory.
double library_seconds(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
