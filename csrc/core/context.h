// What a launcher may ask of its caller. Kernels depend on this interface only, not on torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/problem.h"

namespace fastgemm {

class Context {
 public:
  virtual ~Context() = default;

  // The caller's current CUDA stream (cudaStream_t); null on the CPU.
  virtual void* stream() const { return nullptr; }

  // CPU threads that parallel() may use, at least 1.
  virtual int threads() const { return 1; }

  // Calls task(0) ... task(tasks - 1), each once, on up to threads() threads, and returns when all are done
  // or the call is stopped. Tasks must not wait for each other: on one thread they run one after the other.
  // An exception of a task is thrown again here.
  virtual void parallel(int64_t tasks, const std::function<void(int64_t)>& task) {
    for (int64_t i = 0; i < tasks && !stopped(); ++i) task(i);
  }

  // Scratch memory, 64-byte aligned, valid until the op returns, and reused from call to call. Call it from
  // the launching thread only, before parallel() and before the result is written. Throws OutOfWorkspace
  // (core/budget.h); level=None then tries another kernel.
  virtual void* allocate(size_t bytes) = 0;

  // The product and the transposed copy of the calling framework (torch), which are rows of level 7.
  virtual void callers_gemm(const GemmProblem&) = 0;
  virtual void callers_transpose(const TransposeProblem&) = 0;

  // Whether the call must end early: because of Ctrl-C, or because its time limit has passed
  // (core/interrupt.h). A long task asks this between blocks, on any thread, and returns if it is true. The
  // op then throws, so that nobody uses the incomplete result.
  virtual bool stopped() { return false; }
};

}  // namespace fastgemm
