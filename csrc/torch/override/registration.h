// The registrations with torch's dispatcher. Each is made once and lasts as long as the process.
#pragma once

#include <c10/util/Exception.h>

namespace fastgemm::override {

// Registers kernels in front of torch's own products.
void register_overrides();

// Register kernels of the ops for eager mode, in torch's own C++ interface: a call allocates no handles on
// its way to a kernel, and gradients, autocast and layers run without Python. torch.func, forward mode and
// tracing keep their kernels in Python.
void register_eager();
void register_layer();

// Lets what a signal handler of Python raises end a long product: KeyboardInterrupt for Ctrl-C.
void end_calls_by_signals();

// Suppresses torch's warning about replaced kernels during its lifetime. torch gives that warning once in a
// process, so other libraries' replacements are still reported.
class Quietly {
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace fastgemm::override
