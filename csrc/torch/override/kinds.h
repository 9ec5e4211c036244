// Predicates and casts by the element type of tensors.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace fastgemm::override {

// Whether fastgemm computes torch's products of a type. It
// does not for int8, whose result torch wraps to int8.
inline bool is_multiplied(at::ScalarType t) {
  return t == at::kDouble || t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kInt;
}

// Casts an operand as autocast does: float64, integers and tensors of other devices keep their type.
inline at::Tensor cast(const at::Tensor& t, c10::DeviceType device, at::ScalarType type) {
  const bool is_cast = t.device().type() == device && t.is_floating_point() && t.scalar_type() != at::kDouble;
  return is_cast ? at::autocast::cached_cast(type, t, device) : t;
}

}  // namespace fastgemm::override
