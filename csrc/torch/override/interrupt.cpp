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
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include "torch/override/registration.h"
#include "torch/override/scope.h"

namespace fastgemm::override {
namespace {

// What a handler raised. Only the main thread runs handlers, and reads this.
struct {
  PyObject *type, *value, *traceback;
} raised{};

// Python runs handlers in the thread that the process began with, or was forked by, as the kernel counts.
bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

// An op excludes autograd's keys while it computes. A handler that trains needs them, as where the program
// called the op.
c10::impl::LocalDispatchKeySet keys_of_program() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  if (!c10::InferenceMode::is_enabled())
    keys.excluded_ = keys.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys;
}

// The interpreter of TorchScript makes a RuntimeError of every exception, so that a program that catches
// those would go on after Ctrl-C. There Python runs the handler when it is back in its own code.
bool in_torchscript() { return !torch::jit::currentCallstack().empty(); }

// Asks within an op, but the handler runs as if the program called it.
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

}  // namespace

void end_calls_by_signals() {
  static const Interruption interruption{&handler_raises, &raise};
  set_interruption(&interruption);
}

}  // namespace fastgemm::override
