// torch's side of core/context.h for CUDA tensors.
#pragma once

#include <vector>

#include "cuda/available.h"
#include "torch/op_context.h"
#include "torch/views.h"

namespace fastgemm::torch_ops {

// Makes the device current for its lifetime. Work goes to torch's current stream of the device; scratch
// memory comes from torch's caching allocator, which hands it to a later call only on the same stream, so
// that it may go back as soon as the kernels are launched. During graph capture it comes from the graph's own
// pool.
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
