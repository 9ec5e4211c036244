// What the stable ABI does in more time than torch's own C++ interface. The library of csrc/torch/override,
// which is made for one version of torch, brings faster ways where it is loaded.
#pragma once

#include "torch/views.h"

namespace fastgemm::torch_ops {

struct Hooks {
  // A new tensor of a view's type, device, sizes and strides, whose owner is the caller; null where that
  // failed.
  AtenTensorHandle (*empty)(const View&) = nullptr;
};
void set_hooks(const Hooks&);

// The same; throws TorchError.
AtenTensorHandle empty_tensor(const View&);

}  // namespace fastgemm::torch_ops
