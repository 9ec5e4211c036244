// torch function modes (torch.overrides.TorchFunctionMode): objects that see each call of a torch function
// before it is computed.
#pragma once

#include <torch/csrc/python_headers.h>

namespace fastgemm::override {

// Whether a mode of this thread must see products. Some modes do nothing to products, such as the mode of
// torch.set_default_device, which is for functions that create tensors. They are skipped, because calling
// them in Python takes as long as a small product.
bool a_mode_intercepts();

// Functions for Python. `leave_alone` registers a type of modes to skip; the type must live as long as torch.
PyObject* leave_alone(PyObject*, PyObject* type);
PyObject* is_overridden(PyObject*, PyObject* const* operands, Py_ssize_t count);
PyObject* call_unseen(PyObject*, PyObject* given, PyObject* names);

// Whether this is a tensor, not of a subclass.
bool is_exact(PyObject*);

}  // namespace fastgemm::override
