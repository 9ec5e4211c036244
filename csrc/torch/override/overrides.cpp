// Kernels that replace torch's own products for the CPU and CUDA keys. These keys come after autograd,
// autocast and torch.func, so only the computation remains to be done. matmul, linear, einsum, cdist and the
// mathematical form of attention arrive here as mm, bmm, addmm and baddbmm. So do products of a backward pass
// and products that torch computes inside its C++ code.
//
// They are registered once and never removed, because torch's dispatcher reads its tables without a lock.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <mutex>

#include "torch/override/registration.h"
#include "torch/override/route.h"
#include "torch/override/scope.h"
#include "torch/queries.h"

namespace fastgemm::override {
namespace {

// The override of one op for one dispatch key.
class Override final : public c10::OperatorKernel {
 public:
  // `before` is the kernel registered until now: torch's own, or the one of another library that replaced it.
  Override(Product product, c10::SafeKernelFunction before)
      : product_(std::move(product)), before_(std::move(before)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    Frames frames;
    if (!frames.get()) [[likely]]
      return before_.callBoxed(op, keys, stack);
    if (std::optional<at::Tensor> result = route(frames, *stack)) {
      torch::jit::drop(*stack, size_t(product_.arguments));
      return torch::jit::push(*stack, std::move(*result));
    }
    const Computing computing;
    before_.callBoxed(op, keys, stack);
  }

 private:
  std::optional<at::Tensor> route(Frames& frames, torch::jit::Stack& stack) const {
    const auto arguments = torch::jit::last(stack, size_t(product_.arguments));
    for (; frames.get(); frames.next()) {
      const PatchFrame& frame = *frames.get();
      std::string reason;
      if (const std::optional<std::string> why = why_passed_on(product_, arguments, frame))
        reason = *why;
      else if (std::optional<at::Tensor> result = compute(product_, arguments, frame, reason)) {
        count(frame, Counts::What::routed, torch_ops::take_last_gemm_kernel());
        return result;
      }
      count(frame, Counts::What::passed_on, reason);
    }
    return std::nullopt;
  }
  void count(const PatchFrame& frame, Counts::What what, std::string_view by) const {
    if (!frame.counts) return;
    frame.counts->add(what, product_.name, by.empty() ? "none: nothing was multiplied" : by);
  }

  const Product product_;
  c10::SafeKernelFunction before_;
};

struct Replacement {
  c10::DispatchKey key;
  std::string op;
  std::unique_ptr<Override> kernel;
};

// Whether torch has a kernel for a key. Its grouped product on a CPU has one for all keys.
bool is_computed_on(const c10::OperatorHandle& op, c10::DispatchKey key) {
  return op.hasKernelForDispatchKey(key) ||
         (op.operator_name().name == "aten::_grouped_mm" && op.hasComputedKernelForDispatchKey(key));
}

// Collects all products of this torch before any is replaced, so that each kernel found is the original one.
std::vector<Replacement> replacements() {
  std::vector<Replacement> found;
  for (const auto key : {c10::DispatchKey::CPU, c10::DispatchKey::CUDA})
    for (const auto& [name, overload] : kProducts) {
      const auto op = c10::Dispatcher::singleton().findSchema({name, overload});
      if (!op || !is_computed_on(*op, key)) continue;
      found.push_back(
          {key, toString(op->operator_name()),
           std::make_unique<Override>(Product(op->schema()), op->getComputedKernelForDispatchKey(key))});
    }
  return found;
}

}  // namespace

void register_overrides() {
  static std::once_flag once;
  std::call_once(once, [] {
    const WarningsDisabled disabled;
    for (Replacement& r : replacements()) {
      auto* library =
          new torch::Library(torch::Library::IMPL, "aten", r.key, __FILE__, __LINE__);  // never deleted
      library->impl(r.op.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(r.kernel)));
    }
  });
}

}  // namespace fastgemm::override
