// Products as functions of Python's C interface, because a call through torch.ops costs 0.5 to 2 us more.
// They return NotImplemented for what only Python knows how to hand on (tensor subclasses, modes, traces,
// vectors, other devices) or what it has to say something about.
#pragma once

#include <torch/csrc/python_headers.h>

namespace fastgemm::override {

// a, b. The choice of a kernel is left open.
PyObject* matmul_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

// The arguments of torch.ops.fastgemm.gemm, all of them and in its order.
PyObject* gemm_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

// Input, weight, bias or None, whether the weight is transposed. The choice of a kernel is left open.
PyObject* linear_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

}  // namespace fastgemm::override
