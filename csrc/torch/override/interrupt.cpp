// Ctrl-C while a product runs. Python's own handler only takes note of a signal, and what the program wants
// done about it runs when the main thread is back in the interpreter. A long product therefore asks for that
// itself, and what is raised there leaves the op as torch carries every exception of Python through C++.
//
// python_error brings code of pybind11 along. override.cmake picks its plain form, which is the same for
// every version of Python.
#include "core/interrupt.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

// The header below relies on this one.
#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>

#include "torch/override/registration.h"

namespace fastgemm::override {
namespace {

// What a handler raised. Only the main thread runs handlers, and reads this.
struct {
  PyObject *type, *value, *traceback;
} raised{};

// Python runs handlers in the thread that the process began with, or was forked by, as the kernel counts.
bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

bool handler_raises() {
  if (!is_main_thread() || !Py_IsInitialized()) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raises = PyErr_CheckSignals() != 0;
  if (raises) PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
  PyGILState_Release(state);
  return raises;
}

void raise() {
  python_error error;
  error.type = std::exchange(raised.type, nullptr);
  error.value = std::exchange(raised.value, nullptr);
  error.traceback = std::exchange(raised.traceback, nullptr);
  error.message = "interrupted";
  throw error;
}

}  // namespace

void end_calls_by_signals() {
  static const Interruption interruption{&handler_raises, &raise};
  set_interruption(&interruption);
}

}  // namespace fastgemm::override
