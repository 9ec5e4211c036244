// The right side of a complex product, written as the rows of a real one.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// Each row b of src, or of its conjugate, becomes two rows of dst: b, and i b (with `turns_back` -i b). Only
// signs change, so that NaN and infinity pass as they are. src: (rows, cols) of any strides, dst: (2 rows,
// cols), matrices without gaps; strides in complex elements.
struct DoubledRows {
  int part_bytes = 4;  // of a real or imaginary part: 2, 4 or 8
  bool conjugates = false, turns_back = false;
  int64_t batch = 1, rows = 0, cols = 0;
  ConstMatrix src;
  Matrix dst;
};

namespace cpu {
void double_rows(const DoubledRows&, Context&);
}
namespace cuda {  // where the CUDA code was built
void double_rows(const DoubledRows&, Context&);
}
namespace simt {
void double_rows(const DoubledRows&, Context&);
}

}  // namespace fastgemm
