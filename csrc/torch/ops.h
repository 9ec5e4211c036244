// The boxed kernels that library.cpp registers.
#pragma once

#include <stdexcept>

#include "torch/boxed.h"

namespace fastgemm::torch_ops {

void gemm(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void matmul(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void gemm_out(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void transpose(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void transpose_out(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void add(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void add_out(StableIValue* stack, uint64_t inputs, uint64_t outputs);
void add_in_place(StableIValue* stack, uint64_t inputs, uint64_t outputs);

// None arrives as 0, so an explicit 0 must not pass for it; select() names the accepted levels.
inline constexpr int64_t kNoLevel = INT64_MIN;
inline int level_of(int64_t given) {
  if (given == kNoLevel) return 0;
  if (given < 1 || given > 7)
    throw std::invalid_argument("fastgemm: level must be 1 to 7 or None, got " + std::to_string(given));
  return int(given);
}

// Likewise an empty name must not pass for None.
inline std::string_view kernel_of(const std::optional<std::string>& given) {
  if (!given) return {};
  if (given->empty()) throw std::invalid_argument("fastgemm: unknown kernel ''; None leaves the choice open");
  return *given;
}

}  // namespace fastgemm::torch_ops
