// Kinds of tensors.
#pragma once

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>

namespace fastgemm::override {

// Whether torch's products of a type are fastgemm's: int8, which torch wraps to int8, is none of them.
inline bool is_multiplied(at::ScalarType t) {
  return t == at::kDouble || t == at::kFloat || t == at::kHalf || t == at::kBFloat16 || t == at::kInt;
}

// What autocast makes of an operand: float64 and integers keep their type, as does another device's tensor.
inline at::Tensor cast(const at::Tensor& t, c10::DeviceType device, at::ScalarType type) {
  const bool is_cast = t.device().type() == device && t.is_floating_point() && t.scalar_type() != at::kDouble;
  return is_cast ? at::autocast::cached_cast(type, t, device) : t;
}

}  // namespace fastgemm::override
