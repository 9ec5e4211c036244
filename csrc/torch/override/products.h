// The ops that are torch's products, and the positions of their arguments.
#pragma once

#include <ATen/core/function_schema.h>

#include <string>
#include <string_view>

namespace fastgemm::override {

// One op, with the positions of its arguments on the stack of a call; -1 if it has no such argument.
struct Product {
  explicit Product(const c10::FunctionSchema&);

  std::string name;  // of the op, without namespace and overload
  int rank;          // dimensions of each operand; those of groups have 2 or 3
  int arguments;
  int a, b, c = -1;
  int beta, alpha, out_dtype, use_gelu;
  int out;         // c itself for an in-place op
  int offs, bias;  // of a grouped product; bias also of scaled codes
  // Of a product of scaled codes; _scaled_mm has no recipes, and _scaled_mm_v2 no scale_result.
  int scale_a, scale_b, recipe_a, recipe_b, swizzle_a, swizzle_b, scale_result, contraction;
  bool is_grouped() const { return offs >= 0; }
  bool is_scaled() const { return scale_a >= 0; }
};

inline constexpr struct {
  const char *name, *overload;
} kProducts[] = {
    {"aten::mm", ""},
    {"aten::mm", "out"},
    {"aten::mm", "dtype"},
    {"aten::mm", "dtype_out"},
    {"aten::bmm", ""},
    {"aten::bmm", "out"},
    {"aten::bmm", "dtype"},
    {"aten::bmm", "dtype_out"},
    {"aten::addmm", ""},
    {"aten::addmm", "out"},
    {"aten::addmm", "dtype"},
    {"aten::addmm", "dtype_out"},
    {"aten::baddbmm", ""},
    {"aten::baddbmm", "out"},
    {"aten::baddbmm", "dtype"},
    {"aten::baddbmm", "dtype_out"},
    {"aten::addmm_", ""},
    {"aten::baddbmm_", ""},
    {"aten::_addmm_activation", ""},
    {"aten::_addmm_activation", "out"},
    {"aten::_grouped_mm", ""},
    {"aten::_scaled_mm", ""},
    {"aten::_scaled_mm", "out"},
    {"aten::_scaled_mm_v2", ""},
    {"aten::_scaled_mm_v2", "out"},
    {"aten::_scaled_grouped_mm", ""},
    {"aten::_scaled_grouped_mm_v2", ""},
};

}  // namespace fastgemm::override
