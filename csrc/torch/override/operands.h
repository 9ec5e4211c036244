// Which operands of torch's products fastgemm takes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>

#include "torch/override/kinds.h"
#include "torch/views.h"

namespace fastgemm::override {

using Arguments = at::ArrayRef<c10::IValue>;

inline const at::Tensor& tensor_at(Arguments arguments, int i) { return arguments[size_t(i)].toTensor(); }

inline std::string name_of(at::ScalarType t) {
  return torch_ops::dtype_text(int32_t(t)).substr(sizeof("torch.") - 1);
}

// Why fastgemm does not read a tensor, whatever its type and shape; none if it does.
inline std::optional<std::string> why_not_memory(const at::Tensor& t) {
  if (!t.device().is_cpu() && !t.device().is_cuda()) return "a tensor on " + t.device().str();
  if (t.layout() != at::kStrided || !t.has_storage()) return "a tensor without memory of its own";
  if (t.is_neg()) return "a negative view";
  if (has_names(t)) return "a tensor with names";
  return std::nullopt;
}

// Why fastgemm does not take an operand, whatever its shape; none if it does. `extends`: also of types that
// torch does not multiply.
inline std::optional<std::string> why_not(const at::Tensor& t, bool extends) {
  const at::ScalarType type = t.scalar_type();
  if (!is_multiplied(type) && !(extends && type == at::kComplexHalf)) return "dtype " + name_of(type);
  return why_not_memory(t);
}

}  // namespace fastgemm::override
