// Implements core/context.h for CUDA tensors.
#pragma once

#include <vector>

#include "cuda/available.h"
#include "torch/op_context.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

// Makes the device current for its lifetime. Work goes to torch's current stream of the device. Scratch
// memory comes from torch's caching allocator, during graph capture from the graph's own pool. The allocator
// reuses memory only on the same stream, so it may be freed as soon as the kernels are launched.
class CudaContext final : public OpContext {
 public:
  explicit CudaContext(int device_index);
  ~CudaContext() override { release(); }
  void* stream() const override { return stream_; }
  void callers_gemm(const GemmProblem&) override;
  void callers_transpose(const TransposeProblem&) override;

 private:
  void* obtain(size_t bytes) override;
  void release() override;

  cuda::DeviceGuard guard_;
  int device_index_;
  void* stream_ = nullptr;
  std::vector<void*> scratch_;
};

}  // namespace fastgemm::torch_ops
