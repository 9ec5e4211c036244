// torch.ops.fastgemm.quantize_fp8: a matrix, or activation(x) + residual, as codes of 8-bit floating-point
// numbers and their scales. torch.ops.fastgemm._quantize_fp8_with_transposed: a matrix and its transpose.
#include <algorithm>
#include <array>
#include <utility>

#include "core/passes.h"
#include "torch/context.h"
#include "torch/fp8_arguments.h"
#include "torch/layer.h"
#include "torch/ops.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

DType type_of_numbers(int32_t dtype) {
  if (dtype == kFloat) return DType::f32;
  if (dtype == kBFloat16) return DType::bf16;
  if (dtype == kHalf) return DType::f16;
  bad_value("x has dtype " + dtype_text(dtype) +
            "; accepted: torch.float32, torch.bfloat16 and torch.float16");
}

bool has_contiguous_columns(const View& x) { return x.stride(1) != 1 && x.stride(2) == 1; }

// A matrix whose rows are contiguous.
Tensor with_contiguous_rows(const Tensor& x) {
  const View v(x);
  return v.size(1) > 1 && v.stride(1) != 1 ? contiguous_matrices(x.get(), v) : x;
}

// Sets the activation that is applied before rounding, and the number of columns of the codes.
void set_activation(QuantizeFp8& g, const std::optional<std::string>& activation) {
  g.gated = activation == "swiglu";
  if (!g.gated) return void(g.activation = activation_of(activation));
  if (g.cols % 2)
    bad_value("activation='swiglu' halves the result, whose size " + std::to_string(g.cols) + " is odd");
  g.cols /= 2;
}
void check_residual(const View& r, const View& x, const QuantizeFp8& g) {
  require_same_device("residual", r, "x", x);
  const std::array shape{g.rows, g.cols};
  if (r.dim != 2 || r.size(2) != g.rows || r.size(1) != g.cols || r.dtype != x.dtype)
    bad_value("residual has shape " + shape_text(r.shape()) + " and dtype " + dtype_text(r.dtype) +
              ", expected " + shape_text(shape) + " and " + dtype_text(x.dtype));
}

// A matrix that is rounded, and blocks of 0 rows or columns as all of them.
QuantizeFp8 rounded(const View& x, const Blocks& blocks, std::optional<int32_t> dtype, bool e8m0) {
  if (x.dim != 2) bad_value("x must have 2 dimensions, got shape " + shape_text(x.shape()));
  check_blocks(blocks);
  if (std::max(x.size(1), x.size(2)) > int64_t{1} << 30)
    bad_value("x may have up to 2^30 rows and columns, got shape " + shape_text(x.shape()));
  QuantizeFp8 g;
  g.type = type_of_numbers(x.dtype), g.code = fp8_code("the result", dtype.value_or(kFloat8E4M3));
  g.rows = x.size(2), g.cols = x.size(1);
  g.scale = e8m0 ? ScaleType::e8m0 : ScaleType::f32;
  return g;
}
int64_t size_of_block(int64_t given, int64_t all) { return given ? given : std::max<int64_t>(all, 1); }
// Scales that the pass computes. A matrix without numbers is one of zeros, because a product may sum over
// none.
Tensor scales_of(int64_t rows, int64_t cols, const QuantizeFp8& g, const View& x) {
  Tensor scales =
      empty_contiguous(std::array{rows, cols}, g.scale == ScaleType::e8m0 ? kFloat8E8M0 : kFloat, x);
  if (g.rows == 0 || g.cols == 0) check(aoti_torch_zero_(scales.get()), "zero_");
  return scales;
}

// The blocks by which the transpose of what is read can be rounded, too: all, rows, and parts of them.
bool is_for_both_sides(const Blocks& blocks) {
  constexpr Blocks accepted[] = {{0, 0}, {1, 0}, {1, 32}, {1, 128}, {128, 128}};
  return std::ranges::find(accepted, blocks) != std::end(accepted);
}
// Sets that the matrix is read whose rows are the columns of x, and only its transpose is rounded.
void round_columns(QuantizeFp8& g, const View& x, const Blocks& blocks) {
  std::swap(g.rows, g.cols);
  g.x = x.data, g.row_stride = x.stride(1);
  g.codes_t = std::exchange(g.codes, nullptr), g.scales_t = std::exchange(g.scales, nullptr);
  g.block_rows_t = g.block_rows, g.block_cols_t = g.block_cols;
  g.block_rows = size_of_block(blocks.rows, g.rows), g.block_cols = size_of_block(blocks.cols, g.cols);
}

}  // namespace

void quantize_fp8(StableIValue* stack, uint64_t, uint64_t) {
  // In the order of the schema in library.cpp.
  StackReader s(stack);
  const Tensor x = s.tensor();
  const std::optional<Tensor> given = s.optional_tensor();
  const int64_t rows = s.integer(), cols = s.integer();
  const Blocks blocks{rows, cols};
  const std::optional<int32_t> dtype = s.optional_dtype();
  const bool e8m0 = s.flag();
  const std::optional<std::string> activation = s.optional_string();
  const std::optional<Tensor> residual = s.optional_tensor();

  const View v(x);
  QuantizeFp8 g = rounded(v, blocks, dtype, e8m0);
  set_activation(g, activation);
  g.block_rows = size_of_block(rows, g.rows), g.block_cols = size_of_block(cols, g.cols);
  const bool columns =
      has_contiguous_columns(v) && !given && g.as_it_is() && !residual && is_for_both_sides(blocks);
  const Tensor matrix = columns ? x : with_contiguous_rows(x);
  const View m(matrix);
  g.x = m.data, g.row_stride = m.stride(2);
  std::optional<Tensor> added;
  if (residual) {
    check_residual(View(*residual), v, g);
    added = with_contiguous_rows(*residual);
    g.residual = View(*added).data, g.residual_row_stride = View(*added).stride(2);
  }

  const Tensor codes = empty_contiguous(std::array{g.rows, g.cols}, dtype.value_or(kFloat8E4M3), v);
  const int64_t scale_rows = rows ? g.scale_rows() : 1, scale_cols = cols ? g.scale_cols() : 1;
  if (given) {
    const View w(*given);
    require_same_device("out_scale", w, "x", v);
    if (w.dtype != kFloat || w.dim != 2 || w.size(1) != 1 || w.size(2) != 1 || rows || cols || e8m0)
      bad_value("a scale that is given is one float32, got " + dtype_text(w.dtype) + " of shape " +
                shape_text(w.shape()));
    g.scale_is_given = true;
  }
  // An op must not return its argument, so a scale that is given is copied.
  const Tensor scales = scales_of(scale_rows, scale_cols, g, v);
  if (given) check(aoti_torch_copy_(scales.get(), given->get(), 0), "copy_");
  g.codes = View(codes).data, g.scales = View(scales).data;
  if (columns) round_columns(g, v, blocks);
  with_context(v, [&](Context& context, Device device, int) {
    if (g.rows > 0 && g.cols > 0) passes_of(device).quantize_fp8(g, context);
  });
  stack[0] = torch::stable::detail::from(codes);
  stack[1] = torch::stable::detail::from(scales);
}

void quantize_fp8_with_transposed(StableIValue* stack, uint64_t, uint64_t) {
  StackReader s(stack);
  const Tensor x = s.tensor();
  const int64_t rows = s.integer(), cols = s.integer();
  const std::optional<int32_t> dtype = s.optional_dtype();
  const bool e8m0 = s.flag();

  const View v(x);
  QuantizeFp8 g = rounded(v, {rows, cols}, dtype, e8m0);
  if (!is_for_both_sides({rows, cols}))
    bad_value(
        "a matrix and its transpose are rounded by blocks of all, of rows, of 1 x 32, 1 x 128 or 128 x 128 "
        "numbers, not of " +
        std::to_string(rows) + " x " + std::to_string(cols));
  // Both get the same treatment, so a matrix with contiguous columns needs no copy.
  const bool turned = has_contiguous_columns(v);
  if (turned) std::swap(g.rows, g.cols);
  const Tensor matrix = turned ? x : with_contiguous_rows(x);
  const View m(matrix);
  g.x = m.data, g.row_stride = m.stride(turned ? 1 : 2);
  g.block_rows = size_of_block(rows, g.rows), g.block_cols = size_of_block(cols, g.cols);
  g.block_rows_t = size_of_block(rows, g.cols), g.block_cols_t = size_of_block(cols, g.rows);
  const int32_t code = dtype.value_or(kFloat8E4M3);
  const QuantizeFp8 t = g.transposed(nullptr);
  const auto blocks_of = [&](const QuantizeFp8& one) {
    return scales_of(rows ? one.scale_rows() : 1, cols ? one.scale_cols() : 1, g, v);
  };
  Tensor results[] = {empty_contiguous(std::array{g.rows, g.cols}, code, v), blocks_of(g),
                      empty_contiguous(std::array{g.cols, g.rows}, code, v), blocks_of(t)};
  g.codes = View(results[0]).data, g.scales = View(results[1]).data;
  g.codes_t = View(results[2]).data, g.scales_t = View(results[3]).data;
  with_context(v, [&](Context& context, Device device, int) {
    if (g.rows > 0 && g.cols > 0) passes_of(device).quantize_fp8(g, context);
  });
  if (turned) std::swap(results[0], results[2]), std::swap(results[1], results[3]);
  for (int i = 0; i < 4; ++i) stack[i] = torch::stable::detail::from(results[i]);
}

}  // namespace fastgemm::torch_ops
