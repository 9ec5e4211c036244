#include "torch/override/modes.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <vector>

namespace fastgemm::override {
namespace {

using Modes = at::impl::PythonTorchFunctionTLS;

std::vector<PyObject*>& skipped_modes() {
  static auto& types = *new std::vector<PyObject*>;
  return types;
}

bool is_skipped(const c10::SafePyObject& mode) {
  auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(mode.ptr(&mode.pyinterpreter())));
  return std::ranges::find(skipped_modes(), type) != skipped_modes().end();
}

// Hides all modes during its lifetime.
class ModesDisabled {
 public:
  ModesDisabled() { Modes::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED); }
  ~ModesDisabled() { Modes::set_disabled_state(before_); }
  ModesDisabled(const ModesDisabled&) = delete;
  ModesDisabled& operator=(const ModesDisabled&) = delete;

 private:
  const at::impl::TorchFunctionDisabledState before_ = Modes::get_disabled_state();
};

}  // namespace

bool a_mode_intercepts() {
  if (!at::impl::torch_function_mode_enabled()) return false;
  for (int64_t i = 0; i < Modes::stack_len(); ++i)
    if (!is_skipped(*Modes::get_stack_at(i))) return true;
  return false;
}

bool is_exact(PyObject* object) { return THPVariable_CheckTypeExact(Py_TYPE(object)); }

PyObject* leave_alone(PyObject*, PyObject* type) {
  Py_IncRef(type);  // Py_INCREF would bind this to one version of Python
  skipped_modes().push_back(type);
  Py_RETURN_NONE;
}

PyObject* is_overridden(PyObject*, PyObject* const* operands, Py_ssize_t count) {
  const auto is_plain = [](PyObject* object) { return object == Py_None || is_exact(object); };
  if (!a_mode_intercepts() && std::all_of(operands, operands + count, is_plain)) Py_RETURN_FALSE;
  Py_RETURN_TRUE;
}

// Not by PyObject_Vectorcall, which is only an inline function in Python 3.10.
PyObject* call_unseen(PyObject*, PyObject* given, PyObject* names) {
  PyObject* const arguments = PyTuple_GetSlice(given, 1, PyTuple_Size(given));
  if (!arguments) return nullptr;
  const ModesDisabled disabled;
  PyObject* const result = PyObject_Call(PyTuple_GetItem(given, 0), arguments, names);
  Py_DecRef(arguments);
  return result;
}

}  // namespace fastgemm::override
