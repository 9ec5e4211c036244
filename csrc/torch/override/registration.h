// What this library registers with torch's dispatcher, each once and for ever.
#pragma once

#include <c10/util/Exception.h>

namespace fastgemm::override {

// Kernels in front of torch's own products.
void register_overrides();

// Kernels of the ops for eager mode, in torch's own C++ interface: no handles on the way to a kernel, and
// gradients, autocast and layers without Python. What has none here keeps that in Python: torch.func, forward
// mode, tracing.
void register_eager();
void register_layer();

// torch warns of kernels that are replaced, once for all who do so; of these it need not, while one of these
// lives.
class Quietly {
  struct Handler final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace fastgemm::override
