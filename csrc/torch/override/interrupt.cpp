// Ctrl-C while a product runs. When a signal comes, Python only notes it; the handlers of the program run
// when the main thread is back in the interpreter. A long product therefore runs the handlers itself. An
// exception that they raise leaves the op as a python_error, as torch passes every Python exception through
// C++.
//
// python_error includes code of pybind11. override.cmake selects its form without pybind11's internals, which
// is the same for every version of Python.
#include "core/interrupt.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

// The header below needs this one.
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "torch/override/registration.h"
#include "torch/override/scope.h"

namespace fastgemm::override {
namespace {

// The exception that a handler raised, or that Python's own code left pending.
thread_local struct {
  PyObject *type, *value, *traceback;
} raised{};

// Python runs handlers in the main thread. Its id is the process id, also after a fork.
bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

// The dispatch keys as they were where the program called the op. An op excludes autograd's keys while it
// computes, but a handler that trains a model needs them.
c10::impl::LocalDispatchKeySet keys_of_program() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  if (!c10::InferenceMode::is_enabled())
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

// TorchScript's interpreter turns every exception into a RuntimeError. A program that catches RuntimeError
// would then continue after Ctrl-C. So inside TorchScript the product does not stop, and Python runs the
// handler afterwards.
bool in_torchscript() { return !torch::jit::currentCallstack().empty(); }

// Runs the handlers inside an op, but with the state that the program had outside of it. Returns whether one
// raised.
bool handler_raises() {
  if (!is_main_thread() || !Py_IsInitialized() || in_torchscript()) return false;
  const c10::impl::ForceDispatchKeyGuard keys(keys_of_program());
  const Computing computing(false);
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

// The caller holds the interpreter's lock.
void raise_pending() {
  if (in_torchscript()) return;
  PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
  raise();
}

}  // namespace

void end_calls_by_signals() {
  static const Interruption interruption{&handler_raises, &raise, &raise_pending};
  set_interruption(&interruption);
}

}  // namespace fastgemm::override
