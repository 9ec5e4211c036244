// Measures the kernels of a product where it first runs: fastgemm.patch(tune=True), enable(tune=True) and
// FASTGEMM_TUNE=1. A plan notes whether its product is to be measured, so a product whose kernel is known
// costs no more than without.
#pragma once

#include "torch/first_call_hook.h"
#include "torch/plans.h"

namespace fastgemm::torch_ops {

inline bool is_tuned(const ProductCall& call) { return !call.is_group && (call.tune || tunes_all()); }

// Whether a product is to be measured: the call asks for a measurement, names neither level nor kernel, and
// no kernel is remembered for the product. Symmetric results and other shortcuts are never measured.
bool is_unmeasured(const ProductCall&, const GemmProblem&, const Decision&, Device, int threads);

// Measures the product of a plan. `run` computes it by a kernel, into a result of the plan's layout. Returns
// whether the kernel is known now, so that another plan holds.
bool measure_first(const ProductCall&, const Plan&, Device, int threads,
                   void (*run)(const Kernel&, const Plan&, const ProductCall&, const TensorRef& out));

}  // namespace fastgemm::torch_ops
