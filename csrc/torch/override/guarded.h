// Calls C++ from functions of Python's C interface.
#pragma once

#include <torch/csrc/Exceptions.h>

namespace fastgemm::override {

// Returns what body() returns. If body() throws, sets a Python exception and returns nullptr. torch has
// macros for this, but they also catch pybind11's exceptions; that code would bind this library to one
// version of Python.
template <class Body>
PyObject* guarded(const Body& body) {
  try {
    torch::PyWarningHandler warnings;
    try {
      return body();
    } catch (...) {
      warnings.set_in_exception();
      throw;
    }
  } catch (...) {
    torch::translate_exception_to_python(std::current_exception());
    return nullptr;
  }
}

}  // namespace fastgemm::override
