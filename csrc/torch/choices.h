// Reads the levels, kernels and precisions that a caller names.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "core/names.h"
#include "core/select.h"

namespace fastgemm::torch_ops {

// An explicit level 0 or an empty name is an error; it does not mean None.
inline Choice choice_of(std::optional<int64_t> level, std::optional<std::string_view> kernel) {
  if (level && (*level < 1 || *level > 7))
    throw std::invalid_argument("fastgemm: level must be 1 to 7 or None, got " + std::to_string(*level));
  if (kernel && kernel->empty())
    throw std::invalid_argument("fastgemm: unknown kernel ''; None leaves the choice open");
  return {int(level.value_or(0)), kernel.value_or(std::string_view{})};
}

inline std::optional<Precision> precision_of(std::optional<std::string_view> given) {
  if (!given) return std::nullopt;
  for (int i = 0; i < kPrecisions; ++i)
    if (*given == to_string(static_cast<Precision>(i))) return static_cast<Precision>(i);
  throw std::invalid_argument(
      "fastgemm: precision must be 'ieee', 'tf32', 'bf16x3', 'bf16x6', 'fp16x3', 'crt14' to 'crt18' or None, "
      "got '" +
      std::string(*given) + "'");
}

}  // namespace fastgemm::torch_ops
