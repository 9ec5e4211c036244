// Predicates and casts by the element type of tensors.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

#include "core/problem.h"

namespace fastgemm::override {

// Whether fastgemm computes torch's products of a type. Not for integers of 8 and 16 bits, because torch
// wraps their results to the same type. Not for complex32, because torch has no products of it.
inline bool is_multiplied(at::ScalarType t) {
  return t == at::kDouble || t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kInt ||
         t == at::kLong || t == at::kComplexFloat || t == at::kComplexDouble;
}

// Whether torch's float32 precision applies to products of a type. It applies also to complex64, whose parts
// are float32.
inline bool follows_float32(at::ScalarType t) { return t == at::kFloat || t == at::kComplexFloat; }
// Whether a precision applies to this type; a precision is for float32 or for float64.
inline bool has_precision(at::ScalarType t, Precision p) {
  return type_of(p) == DType::f32 ? follows_float32(t) : t == at::kDouble || t == at::kComplexDouble;
}

// Whether the dimensions have names, which torch supports up to 2.12.
template <class T>
bool has_names(const T& t) {
  if constexpr (requires { t.has_names(); }) return t.has_names();
  return false;
}

// Whether a tensor has memory that layers read.
inline bool is_dense(const at::Tensor& t) {
  return t.layout() == at::kStrided && !t.is_nested() && !t.is_quantized() && !has_names(t) &&
         (t.is_cpu() || t.is_cuda());
}

// Casts an operand like autocast: float64, integers and tensors of other devices keep their type.
inline at::Tensor cast(const at::Tensor& t, c10::DeviceType device, at::ScalarType type) {
  const bool is_cast = t.device().type() == device && t.is_floating_point() && t.scalar_type() != at::kDouble;
  return is_cast ? at::autocast::cached_cast(type, t, device) : t;
}

}  // namespace fastgemm::override
