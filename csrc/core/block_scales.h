// The scales of a matrix of 8-bit floating-point numbers: each multiplies the codes of its block.
#pragma once

#include <cstdint>

#include "core/packed.h"

namespace fastgemm {

struct BlockScales {
  ScaleType type = ScaleType::none;  // none: 1; else f32 or e8m0
  const void* data = nullptr;
  int64_t row_stride = 0, col_stride = 0;                    // between blocks
  int64_t block_rows = 1, block_cols = 1, group_stride = 0;  // group_stride: between matrices of groups

  BlockScales transposed() const {
    return {type, data, col_stride, row_stride, block_cols, block_rows, group_stride};
  }
};

}  // namespace fastgemm
