// Functions that cost less through torch's own C++ interface than through the stable ABI. The library of
// csrc/torch/override provides them when it is loaded; it is built for one version of torch.
#pragma once

#include <stdexcept>

#include "torch/views.h"

namespace fastgemm::torch_ops {

struct Hooks {
  // Returns a new tensor with the type, device, sizes and strides of a view. The caller owns it. Null if it
  // failed.
  AtenTensorHandle (*empty)(const View&) = nullptr;
  // Whether a tensor is a conjugated view: its memory holds the conjugates of its elements. The stable ABI
  // cannot ask this; without the hook, torch copies such views before an op gets them
  // (_tracing/conjugates.py).
  bool (*is_conjugated)(AtenTensorHandle) = nullptr;
  // Throws torch's own exception for a bad value. In Python it is a ValueError.
  void (*throw_value_error)(const char* text) = nullptr;
};
void set_hooks(const Hooks&);
bool is_conjugated(AtenTensorHandle);

// The same, by the hook, or without a hook by the stable ABI. Throws TorchError.
AtenTensorHandle empty_tensor(const View&);

// Calls the hook, if there is one.
void throw_value_error(const char* text);

// Runs the kernel of an op, and throws torch's own exception for a bad value instead of
// std::invalid_argument. In Python, torch's is a ValueError in all versions; std::invalid_argument is a
// RuntimeError from torch 2.15 on. The stable ABI cannot throw torch's error.
template <class Body>
auto with_value_errors(const Body& body) {
  try {
    return body();
  } catch (const std::invalid_argument& refusal) {
    throw_value_error(refusal.what());
    throw;
  }
}

}  // namespace fastgemm::torch_ops
