// Finds the patches that apply to a call.
#pragma once

#include <c10/util/python_stub.h>

#include "torch/patch.h"

namespace fastgemm::override {

// The frames to try for a call, in this order: the patches that this thread (in a backward pass, the thread
// that started it) has entered, innermost first; fastgemm.enable(); the environment variable. There are none
// while a product is computed, so that the ops inside torch's own product are not routed again.
class Frames {
 public:
  Frames();
  const PatchFrame* get() const { return frame_; }
  void next();

 private:
  enum class From : uint8_t { patches, enabled, environment };
  void take(From);

  const PatchFrame* frame_ = nullptr;
  From from_ = From::patches;
};

// The capsule of the innermost patch of this thread, or None.
void set_innermost(PyObject* capsule);

// During its lifetime, disables all frames in this thread, or enables them again.
class Computing {
 public:
  explicit Computing(bool = true);
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  bool before_;
};

}  // namespace fastgemm::override
