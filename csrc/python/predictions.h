#pragma once

#include <nanobind/nanobind.h>

namespace fastgemm {

// Adds what tools and `fastgemm tune` need of csrc/cuda/gemm/predict.
void define_predictions(nanobind::module_&);
void define_cpu_predictions(nanobind::module_&);

}  // namespace fastgemm
