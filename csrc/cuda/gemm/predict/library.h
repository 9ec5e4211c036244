// Predicts the time of the vendor's library. Its kernels are not known, so it was measured: a model of the
// counts (counts.h) says how its time grows, and measured points nearby say how far the model is off.
#pragma once

#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm::predict {

// How predictions for a GPU are made.
enum class Knowledge {
  predicted,  // nothing was measured; the library is assumed to reach the GPU's limits
  measured,   // kernels and library were measured on this type of GPU; constants ship with fastgemm
  tuned,      // `fastgemm tune` measured this very GPU
};
Knowledge knowledge_of(const Gpu&);

// The seconds that the library takes for a product. Where it was not measured, this is a lower limit, from
// the rate of the units that it has to use and the bandwidth of memory.
double library_seconds(const GemmProblem&, const Gpu&);
// The time that an own kernel has to beat to be taken.
double library_to_beat(const GemmProblem&, const Gpu&);

}  // namespace fastgemm::predict
