// Matrices of 8-bit floating-point numbers and their scales, as arguments of the fp8 ops.
#pragma once

#include "core/fp8.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

// The codes that share a scale; 0 is a whole dimension.
struct Blocks {
  int64_t rows = 0, cols = 0;
  bool operator==(const Blocks&) const = default;
};

// The code of a torch dtype. Throws std::invalid_argument, naming the argument.
Fp8 fp8_code(const char* name, int32_t dtype);
// Throws std::invalid_argument if a size of a block is negative.
void check_blocks(const Blocks&);

// One checked operand. Its codes are (m, k) or (batch, m, k). Its scales, float32 or e8m0, have one number
// for each block and as many dimensions as the codes. Both may have any strides. Throws
// std::invalid_argument.
class [[gnu::visibility("hidden")]] Fp8Operand {  // as Tensor is
 public:
  Fp8Operand(const char* name, const Tensor& codes, const Tensor& scales, const Blocks&);

  const View& view() const { return view_; }
  // Whether the columns are contiguous and the rows are not. codes_of() then returns the transposed matrix.
  bool lies_in_columns() const { return in_columns_; }
  // Whether the scales are float32, and each belongs to a whole row (column) or to the whole matrix. This
  // does not depend on the number of rows (columns).
  bool scales_are_lines(bool of_rows) const;
  BlockScales scales_of(int64_t batch) const;
  Fp8 code() const { return code_; }
  // Matrix `batch` in place, (rows, columns); one of its strides is 1.
  ConstMatrix matrix(int64_t batch) const;
  // Between matrices of a batch, and between their scales.
  int64_t matrix_stride() const { return matrix_.dim == 3 ? matrix_.stride(3) : 0; }
  int64_t scales_stride() const { return scale_view_.dim == 3 ? scale_view_.stride(3) : 0; }
  // The problem of widening matrix `batch`; its result is not set.
  WidenFp8 codes_of(int64_t batch, bool scaled) const;
  // The transposed matrix as a packed weight in the order of a CPU, if it has that order.
  std::optional<PackedWeight> as_weight(bool scaled) const;

 private:
  View view_, scale_view_;
  std::optional<Tensor> copy_;  // if no dimension of a matrix is contiguous
  View matrix_;                 // view_, or the copy
  bool in_columns_ = false;
  Fp8 code_;
  Blocks given_, blocks_;  // given_ has 0 for a whole dimension, blocks_ its size
};

}  // namespace fastgemm::torch_ops
