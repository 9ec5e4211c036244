// Which patch holds for a call.
#pragma once

#include <c10/util/python_stub.h>

#include "core/patch.h"

namespace fastgemm::override {

// The frames to try, innermost first: those of the patches that this thread, or the one that started a
// backward pass, has entered, then that of fastgemm.enable(), then the environment's. None while a product is
// computed: what torch's own product is made of is not routed again.
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

// No frames in this thread while it lives.
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

 private:
  bool before_;
};

}  // namespace fastgemm::override
