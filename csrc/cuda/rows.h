// The fields that the rows of CUDA kernels have in common.
#pragma once

#include "core/table.h"
#include "cuda/available.h"

namespace fastgemm::cuda {

// A row that runs from compute capability 8.0 on. The caller sets the launcher of the operation.
constexpr Kernel portable_row(Op op, int level, std::string_view name, DTypeSet types,
                              std::string_view summary, Role role) {
  return {.op = op,
          .device = Device::cuda,
          .level = level,
          .name = name,
          .dtypes = types,
          .needs = "sm_80",
          .summary = summary,
          .role = role,
          .unavailable = unavailable_sm80};
}

}  // namespace fastgemm::cuda
