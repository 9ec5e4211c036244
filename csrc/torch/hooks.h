// Functions that torch's own C++ interface offers at a lower cost than the stable ABI. The library of
// csrc/torch/override, which is made for one version of torch, provides them where it is loaded.
#pragma once

#include <stdexcept>

#include "torch/views.h"

namespace fastgemm::torch_ops {

struct Hooks {
  // Returns a new tensor of a view's type, device, sizes and
  // strides, which the caller owns; null where that failed.
  AtenTensorHandle (*empty)(const View&) = nullptr;
  // Whether a tensor is a conjugated view, whose memory holds the conjugates of its elements. The stable ABI
  // cannot ask; without the hook torch resolves such views before an op sees them (_tracing/conjugates.py).
  bool (*is_conjugated)(AtenTensorHandle) = nullptr;
  // Throws torch's own exception for a bad value, which becomes a ValueError in Python.
  void (*throw_value_error)(const char* text) = nullptr;
};
void set_hooks(const Hooks&);
bool is_conjugated(AtenTensorHandle);

// Does the same by the hook, or without one by the stable ABI. Throws TorchError.
AtenTensorHandle empty_tensor(const View&);

// Throws by the hook, if there is one.
void throw_value_error(const char* text);

// Runs the kernel of an op. From torch 2.15 on, a std::invalid_argument that leaves an op is a RuntimeError
// in Python; before, it was a ValueError. torch's own exception is a ValueError in all versions, and the
// stable ABI cannot throw it.
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
