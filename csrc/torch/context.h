// Implements core/context.h by torch: its threads or stream, scratch memory, and its own operators.
#pragma once

#include <functional>
#include <optional>

#include "core/interrupt.h"
#include "core/simulator.h"
#include "core/table.h"
#include "core/workspace.h"
#include "torch/op_context.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

class CpuContext final : public OpContext {
 public:
  CpuContext();
  int threads() const override { return threads_; }
  void parallel(int64_t tasks, Task task) override;
  bool stopped() override { return poll_.stopped(); }
  // Throws if the call was stopped.
  void check() const { poll_.check(); }
  void callers_gemm(const GemmProblem&) override;
  void callers_transpose(const TransposeProblem&) override;

 private:
  void* obtain(size_t bytes) override { return workspace_->allocate(bytes); }
  void release() override {
    workspace_.reset();
    workspace_.emplace();
  }

  int threads_;
  Poll poll_;
  std::optional<Workspace> workspace_{std::in_place};
};

bool built_with_cuda();
void with_gpu_context(int device_index, const std::function<void(OpContext&, Device, int)>& body);

// Calls body(context, device, threads) for the device of the tensor. A GPU is the current device inside body,
// and threads is 0 there. Throws if the call was stopped (core/interrupt.h).
template <class Body>
void with_context(const View& on, const Body& body) {
  // Only context.cpp knows whether there is CUDA code. A std::function of a reference allocates nothing.
  if (on.device_type != aoti_torch_device_type_cpu())
    return with_gpu_context(on.device_index, std::cref(body));
  CpuContext context;
  body(context, simulating() ? Device::simt : Device::cpu, context.threads());
  context.check();
}

}  // namespace fastgemm::torch_ops
