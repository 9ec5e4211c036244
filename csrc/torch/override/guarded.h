// Calls C++ from functions of Python's C interface.
#pragma once

#include <torch/csrc/Exceptions.h>

namespace fastgemm::override {

// What body() returns, or nullptr with its exception as Python's. torch's macros for this catch pybind11's
// exceptions as well, whose inline code is compiled for one version of Python and would be all of this
// library that is.
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
