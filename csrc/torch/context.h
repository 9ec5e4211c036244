// torch's side of core/context.h: its thread pool, scratch memory, and its own operators.
#pragma once

#include "core/context.h"
#include "core/workspace.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

class CpuContext final : public Context {
 public:
  CpuContext();
  int threads() const override { return threads_; }
  void parallel(int64_t tasks, const std::function<void(int64_t)>& task) override;
  void* allocate(size_t bytes) override { return workspace_.allocate(bytes); }
  void torch_gemm(const GemmProblem&) override;
  void torch_transpose(const TransposeProblem&) override;

 private:
  int threads_;
  Workspace workspace_;
};

}  // namespace fastgemm::torch_ops
