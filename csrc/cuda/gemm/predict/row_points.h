// How far predictions of kernels for 16-bit types are off at products that were measured, in CUDA graphs on
// an H200 (row_points.def).
#pragma once

#include "cuda/gemm/predict/predict.h"

namespace fastgemm::predict {

// log(measured / predicted) for a product among the measured ones. 0 for rows and types without measurements.
double row_correction(Row, const GemmProblem&);

}  // namespace fastgemm::predict
