// The arguments by which ops describe a packed weight (core/packed_weight.h).
#pragma once

#include <optional>
#include <string>

#include "core/packed_weight.h"
#include "torch/boxed.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

struct [[gnu::visibility("hidden")]] PackedArguments {  // as Tensor is
  Tensor codes;
  std::optional<Tensor> scales, zeros, global_scale;
  int64_t n = 0;
  std::string code, scale, zero;
  bool units = false;
  int64_t group_n = 1, group_k = 1;

  // The tensors, which come first in every schema. Braces evaluate from left to right.
  static PackedArguments tensors(StackReader& s) {
    return {s.tensor(), s.optional_tensor(), s.optional_tensor(), s.optional_tensor()};
  }
  // code, scale, zero, units, group_n and group_k.
  void read_format(StackReader& s) {
    code = s.string(), scale = s.string(), zero = s.string(), units = s.flag();
    group_n = s.integer(), group_k = s.integer();
  }
};

struct PackedOperands {
  PackedWeight weight;
  const void* codes = nullptr;
};

// Checks the arguments of a weight of (n, k) on the device of `on`, which the messages call by this name.
// Throws std::invalid_argument.
PackedOperands packed_operands(const PackedArguments&, int64_t k, const View& on, const char* name);

}  // namespace fastgemm::torch_ops
