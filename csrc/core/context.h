// What a launcher may ask of its caller. Kernels depend on this interface only, not on torch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/problem.h"

namespace fastgemm {

// What parallel() calls. It refers to the caller's function object, which outlives the call. std::function
// would do the same, but <functional> doubles what nvcc reads of the standard library for each kernel file.
class Task {
 public:
  template <class Function>
    requires(!std::is_same_v<Function, Task>)
  Task(const Function& function)
      : function_(&function),
        call_([](const void* called, int64_t index) { (*static_cast<const Function*>(called))(index); }) {}
  void operator()(int64_t index) const { call_(function_, index); }

 private:
  const void* function_;
  void (*call_)(const void*, int64_t);
};

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
  virtual void parallel(int64_t tasks, Task task) {
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
