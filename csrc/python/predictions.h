#pragma once

#include <nanobind/nanobind.h>

namespace fastgemm {

// Adds the functions of csrc/cuda/gemm/predict and csrc/cpu/gemm/predict that tools and `fastgemm tune` need.
void define_predictions(nanobind::module_&);
void define_cpu_predictions(nanobind::module_&);

}  // namespace fastgemm
