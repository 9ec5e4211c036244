#include "torch/fp8_arguments.h"

#include <algorithm>
#include <array>
#include <vector>

#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

// Whether the rows of a matrix are contiguous. The stride of a dimension of size 1 has no meaning.
bool in_rows(const View& v) { return v.size(1) <= 1 || v.stride(1) == 1; }
bool in_columns(const View& v) { return v.size(2) <= 1 || v.stride(2) == 1; }

int64_t block_of(int64_t given, int64_t size) { return given ? given : std::max<int64_t>(size, 1); }

}  // namespace

Fp8 fp8_code(const char* name, int32_t dtype) {
  if (dtype == kFloat8E4M3) return Fp8::e4m3;
  if (dtype == kFloat8E5M2) return Fp8::e5m2;
  bad_value(std::string(name) + " has dtype " + dtype_text(dtype) +
            "; accepted: torch.float8_e4m3fn and torch.float8_e5m2");
}

void check_blocks(const Blocks& b) {
  if (b.rows < 0 || b.cols < 0)
    bad_value("a block has no negative size, got " + shape_text(std::array{b.rows, b.cols}));
}

Fp8Operand::Fp8Operand(const char* name, const Tensor& codes, const Tensor& scales, const Blocks& blocks)
    : view_(codes), scale_view_(scales), code_(fp8_code(name, view_.dtype)), given_(blocks) {
  check_blocks(blocks);
  const std::string of_scale = std::string("scale_") + name;
  require_same_device(of_scale.c_str(), scale_view_, name, view_);
  if (scale_view_.dtype != kFloat && scale_view_.dtype != kFloat8E8M0)
    bad_value(of_scale + " has dtype " + dtype_text(scale_view_.dtype) +
              "; accepted: torch.float32 and torch.float8_e8m0fnu");
  // One scale for a matrix may have any shape.
  static constexpr int64_t kOne[] = {1, 1};
  const auto is_one = [](int64_t size) { return size == 1; };
  if (view_.dim == 2 && blocks.rows == 0 && blocks.cols == 0 &&
      std::ranges::all_of(scale_view_.shape(), is_one))
    scale_view_.dim = 2, scale_view_.sizes = scale_view_.strides = kOne;
  std::vector<int64_t> expected(view_.sizes, view_.sizes + view_.dim);
  blocks_ = {block_of(blocks.rows, view_.size(2)), block_of(blocks.cols, view_.size(1))};
  // A dimension that is a single block has one scale, even if it is empty.
  const auto count = [](int64_t size, int64_t given, int64_t block) {
    return given == 0 ? 1 : packed::blocks(size, block);
  };
  expected[size_t(view_.dim - 2)] = count(view_.size(2), blocks.rows, blocks_.rows);
  expected[size_t(view_.dim - 1)] = count(view_.size(1), blocks.cols, blocks_.cols);
  if (!std::ranges::equal(scale_view_.shape(), expected))
    bad_value(of_scale + " has shape " + shape_text(scale_view_.shape()) + ", expected " +
              shape_text(expected) + ", a number for each block of " + name);
  matrix_ = view_;
  if (!in_rows(view_) && !in_columns(view_)) {
    copy_ = contiguous_matrices(codes.get(), view_);
    matrix_ = View(*copy_);
  }
  in_columns_ = !in_rows(matrix_);
}

bool Fp8Operand::scales_are_lines(bool of_rows) const {
  const int64_t lines = of_rows ? given_.rows : given_.cols;
  return scale_view_.dtype == kFloat && lines <= 1 && scale_view_.size(of_rows ? 1 : 2) == 1;
}

BlockScales Fp8Operand::scales_of(int64_t batch) const {
  const View& v = scale_view_;
  BlockScales s;
  s.type = v.dtype == kFloat ? ScaleType::f32 : ScaleType::e8m0;
  const int64_t size = s.type == ScaleType::f32 ? 4 : 1;
  s.data = static_cast<const char*>(v.data) + (v.dim == 3 ? batch * v.stride(3) * size : 0);
  s.row_stride = v.size(2) == 1 ? 0 : v.stride(2), s.col_stride = v.size(1) == 1 ? 0 : v.stride(1);
  s.block_rows = blocks_.rows, s.block_cols = blocks_.cols;
  return s;
}

ConstMatrix Fp8Operand::matrix(int64_t batch) const {
  const View& v = matrix_;
  const auto* const codes = static_cast<const char*>(v.data) + (v.dim == 3 ? batch * v.stride(3) : 0);
  return {codes, v.stride(2), v.stride(1), 0};
}

WidenFp8 Fp8Operand::codes_of(int64_t batch, bool scaled) const {
  WidenFp8 g;
  const View& v = matrix_;
  g.code = code_, g.rows = v.size(2), g.cols = v.size(1);
  g.codes = static_cast<const char*>(v.data) + (v.dim == 3 ? batch * v.stride(3) : 0);
  g.row_stride = v.stride(2);
  if (scaled) g.scales = scales_of(batch);
  if (in_columns_) {
    std::swap(g.rows, g.cols), g.row_stride = v.stride(1);
    std::swap(g.scales.row_stride, g.scales.col_stride);
    std::swap(g.scales.block_rows, g.scales.block_cols);
  }
  return g;
}

std::optional<PackedWeight> Fp8Operand::as_weight(bool scaled) const {
  const WidenFp8 g = codes_of(0, scaled);
  const int64_t across = packed::blocks(g.cols, g.scales.block_cols);
  const bool is_plain = matrix_.dim == 2 && in_columns_ && g.row_stride == g.cols && code_ == Fp8::e4m3;
  const bool in_order = (across == 1 || g.scales.col_stride == 1) &&
                        (g.scales.row_stride == across || g.scales.block_rows >= g.rows);
  if (!is_plain || (scaled && !in_order)) return std::nullopt;
  PackedWeight w;
  w.code = Code::e4m3, w.scale = g.scales.type, w.scales = g.scales.data;
  w.group_n = scaled ? g.scales.block_rows : 1, w.group_k = scaled ? g.scales.block_cols : g.cols;
  return w;
}

}  // namespace fastgemm::torch_ops
