// Products as functions of Python's C interface, because a call through torch.ops costs 0.5 to 2 us more.
// They return NotImplemented for calls that Python must handle (tensor subclasses, modes, traces, other
// devices) and for wrong arguments, for which Python raises the error.
#pragma once

#include <torch/csrc/python_headers.h>

namespace fastgemm::override {

// Arguments: a, b, of which each may be a vector. The fastest known kernel is taken.
PyObject* matmul_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

// Arguments: all of torch.ops.fastgemm.gemm, in its order, and out or None.
PyObject* gemm_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

// Arguments: all of torch.ops.fastgemm.linear, in its order. The input may have any rank.
PyObject* fused_linear_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

// Arguments: input, weight, bias or None, and whether the weight is transposed. The fastest known kernel is
// taken.
PyObject* linear_at_once(PyObject*, PyObject* const* given, Py_ssize_t count);

}  // namespace fastgemm::override
