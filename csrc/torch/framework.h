// torch's own operators as kernels: the `torch` rows of level 7, on either device.
#pragma once

#include "core/problem.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

// The C functions of one device's backend.
struct Backend {
  using Out2 = AOTITorchError (*)(AtenTensorHandle out, AtenTensorHandle a, AtenTensorHandle b);
  using Out3 = AOTITorchError (*)(AtenTensorHandle out, AtenTensorHandle c, AtenTensorHandle a,
                                  AtenTensorHandle b, double beta, double alpha);
  int32_t device_type;
  Out2 mm, bmm, int_mm;
  Out3 addmm, baddbmm;
};

// A tensor of the call and its view; null if the call has no such operand.
struct Operand {
  AtenTensorHandle tensor = nullptr;
  const View* view = nullptr;
  bool copied = false;  // torch copies it to the result; autograd must not record that, so pass a view
};
struct Operands {
  Operand a, b, c, out;
};

// The matrices of the problem are in the memory of these tensors.
void framework_gemm(const Backend&, const Operands&, const GemmProblem&);
void framework_transpose(const Backend&, int32_t device_index, const TransposeProblem&);

}  // namespace fastgemm::torch_ops
