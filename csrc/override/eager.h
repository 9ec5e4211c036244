// The ops of torch.ops.fastgemm for eager mode, in torch's own C++ interface: no handles on the way to a
// kernel, and gradients, autocast and layers without Python.
#pragma once

namespace fastgemm::override {

// Registers the kernels, once. What has no kernel here keeps the one in Python: torch.func, forward mode,
// fake tensors.
void register_eager();
void register_layer();

}  // namespace fastgemm::override
