// The pass that turns a packed weight into a matrix, for rows that take only matrices.
#pragma once

#include "core/context.h"
#include "core/packed_weight.h"
#include "core/problem.h"

namespace fastgemm {

// out[i, j] = the weight of code (i, j), rounded once. out: (n, k), contiguous rows (out.col_stride == 1,
// out.row_stride >= k).
struct Dequantize {
  DType type = DType::f32;  // of out: f32, f16 or bf16
  int64_t n = 0, k = 0;
  const void* codes = nullptr;
  PackedWeight packed;
  Matrix out;
};

namespace cpu {
void run_dequantize(const Dequantize&, Context&);
}
namespace cuda {  // where the CUDA code was built
void run_dequantize(const Dequantize&, Context&);
}
namespace simt {
void run_dequantize(const Dequantize&, Context&);
}

}  // namespace fastgemm
