// The right operand of a complex product, expanded to the rows of a real operand.
#pragma once

#include "core/context.h"
#include "core/problem.h"

namespace fastgemm {

// Each row b of src, or of its conjugate, becomes two rows of dst: b and i b (-i b with `turns_back`). Only
// signs change, so that NaN and infinity keep their values. src: (rows, cols), any strides; dst: (2 rows,
// cols), without gaps. Strides count complex elements.
struct DoubledRows {
  int part_bytes = 4;  // size of a real or imaginary part: 2, 4 or 8
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
