// The registrations with torch's dispatcher. Each is made once and lasts until the process ends.
#pragma once

#include <c10/util/Exception.h>

namespace fastgemm::override {

// Registers kernels that replace torch's own products.
void register_overrides();

// Register kernels of the ops for eager mode through torch's own C++ interface. A call then allocates no
// handles, and gradients, autocast and layers run without Python. torch.func, forward mode and tracing keep
// their kernels in Python.
void register_eager();
void register_layer();

// Lets an exception of a Python signal handler end a long product: KeyboardInterrupt on Ctrl-C.
void end_calls_by_signals();

// Suppresses torch's warning about replaced kernels during its lifetime. torch gives this warning once per
// process; it is then still given when another library replaces kernels.
class WarningsDisabled {
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace fastgemm::override
