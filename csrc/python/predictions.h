#pragma once

#include <pybind11/pybind11.h>

namespace fastgemm {

// Adds what tools and `fastgemm tune` need of csrc/cuda/gemm/predict.
void define_predictions(pybind11::module_&);
void define_cpu_predictions(pybind11::module_&);

}  // namespace fastgemm
