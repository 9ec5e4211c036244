// torch function modes (torch.overrides.TorchFunctionMode), which torch shows each call of a function before
// it is computed.
#pragma once

#include <torch/csrc/python_headers.h>

namespace fastgemm::override {

// Whether a mode of this thread has to see products. There are modes that do nothing to them, such as that of
// torch.set_default_device, which is for functions that make tensors; Python's way to it takes as long as a
// small product.
bool a_mode_intercepts();

// Functions for Python. `leave_alone` names a type of such modes, which lives as long as torch does.
PyObject* leave_alone(PyObject*, PyObject* type);
PyObject* is_overridden(PyObject*, PyObject* const* operands, Py_ssize_t count);
PyObject* call_unseen(PyObject*, PyObject* given, PyObject* names);

// Whether this is a tensor and of no subclass.
bool is_exact(PyObject*);

}  // namespace fastgemm::override
