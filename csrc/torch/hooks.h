// Functions that torch's own C++ interface offers at a lower cost than the stable ABI. The library of
// csrc/torch/override, which is made for one version of torch, provides them where it is loaded.
#pragma once

#include "torch/views.h"

namespace fastgemm::torch_ops {

struct Hooks {
  // Returns a new tensor of a view's type, device, sizes and
  // strides, which the caller owns; null where that failed.
  AtenTensorHandle (*empty)(const View&) = nullptr;
  // Whether a tensor is a conjugated view, whose memory holds the conjugates of its elements. The stable ABI
  // cannot ask; without the hook torch resolves such views before an op sees them (_lazy.py).
  bool (*is_conjugated)(AtenTensorHandle) = nullptr;
};
void set_hooks(const Hooks&);
bool is_conjugated(AtenTensorHandle);

// Does the same by the hook, or without one by the stable ABI. Throws TorchError.
AtenTensorHandle empty_tensor(const View&);

}  // namespace fastgemm::torch_ops
