// The innermost patch of a thread is kept in torch's ThreadLocalPythonObjects, under a name of its own. torch
// passes these objects on to autograd's threads for a backward pass (ATen/ThreadLocalState.h). It does not
// pass on a thread_local. It passes on ThreadLocalDebugInfo, but that is a stack: a profiler that is started
// before a patch and stopped inside the patch would find the patch on top.
#include "torch/override/scope.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <c10/core/impl/PyInterpreterHooks.h>

#include <string>
#include <utility>

// Declarations of Python's stable ABI. Every version of the interpreter that can load this library has them.
extern "C" {
int PyCapsule_IsValid(PyObject*, const char*);
void* PyCapsule_GetPointer(PyObject*, const char*);
void Py_IncRef(PyObject*);
}

namespace fastgemm::override {
namespace {

thread_local bool computing = false;

const std::string& slot() {
  static const auto& name = *new std::string(kPatchSlot);
  return name;
}

// The slot refers to the capsule, and the capsule to the frame, so the frame lives until this thread changes
// the slot. A capsule never changes, so it is read without Python's interpreter lock.
const PatchFrame* innermost() {
  using at::impl::ThreadLocalPythonObjects;
  if (!ThreadLocalPythonObjects::contains(slot())) return nullptr;
  const auto& object = ThreadLocalPythonObjects::get(slot());
  PyObject* capsule = object->ptr(&object->pyinterpreter());
  if (!PyCapsule_IsValid(capsule, kPatchSlot)) return nullptr;  // None, outside of every patch
  return static_cast<std::shared_ptr<const PatchFrame>*>(PyCapsule_GetPointer(capsule, kPatchSlot))->get();
}

}  // namespace

// torch._C._stash_obj_in_tls would do this, but up to torch 2.12 it releases a reference that it never took.
void set_innermost(PyObject* capsule) {
  const auto holder = [](PyObject* object) {
    Py_IncRef(object);
    return std::make_shared<c10::SafePyObject>(object, c10::impl::getGlobalPyInterpreter());
  };
  if (PyCapsule_IsValid(capsule, kPatchSlot))
    return at::impl::ThreadLocalPythonObjects::set(slot(), holder(capsule));
  // None stays in the slot until the thread ends. This reference is never released, because a thread that
  // ends after the interpreter must not release one.
  static const auto& none = *new std::shared_ptr<c10::SafePyObject>(holder(capsule));
  at::impl::ThreadLocalPythonObjects::set(slot(), none);
}

Frames::Frames() {
  if (!computing) take(From::patches);
}

void Frames::next() {
  frame_ = frame_->outer.get();
  if (!frame_ && from_ != From::environment) take(From(int(from_) + 1));
}

void Frames::take(From from) {
  for (from_ = from;; from_ = From(int(from_) + 1)) {
    frame_ = from_ == From::patches   ? innermost()
             : from_ == From::enabled ? everywhere(Everywhere::enabled)
                                      : everywhere(Everywhere::environment);
    if (frame_ || from_ == From::environment) return;
  }
}

Computing::Computing(bool now) : before_(std::exchange(computing, now)) {}
Computing::~Computing() { computing = before_; }

}  // namespace fastgemm::override
