// The scales of a matrix of 8-bit floating-point numbers: each belongs to a block of codes and multiplies
// them.
#pragma once

#include <cstdint>

#include "core/packed.h"

namespace fastgemm {

struct BlockScales {
  ScaleType type = ScaleType::none;  // none: 1; else f32 or e8m0
  const void* data = nullptr;
  int64_t row_stride = 0, col_stride = 0;  // between blocks
  int64_t block_rows = 1, block_cols = 1;
  int64_t batch_stride = 0;  // between the scales of matrices, where an operand has one for each group

  BlockScales transposed() const {
    return {type, data, col_stride, row_stride, block_cols, block_rows, batch_stride};
  }
};

}  // namespace fastgemm
