// What the contexts of both devices have in common: scratch memory within a budget, and the tensors of the
// call.
#pragma once

#include "core/budget.h"
#include "core/context.h"
#include "torch/framework.h"

namespace fastgemm::torch_ops {

class OpContext : public Context {
 public:
  // The tensors of a product, for callers_gemm. They must outlive the context.
  void set_operands(const Operands& operands) { operands_ = operands; }

  void* allocate(size_t bytes) final {
    budget_.take(bytes);
    try {
      return obtain(bytes);
    } catch (const std::bad_alloc&) {
      throw OutOfWorkspace(budget_.taken(), "that much memory is not free");
    }
  }

  // Frees the scratch memory of the last kernel before the same call tries another one.
  void start_over() {
    budget_.start_over();
    release();
  }
  // The same; the next kernel may use up to `limit` bytes.
  void start_over(size_t limit) {
    budget_.start_over(limit);
    release();
  }

 protected:
  const Operands& operands() const { return operands_; }
  virtual void* obtain(size_t bytes) = 0;  // throws std::bad_alloc
  virtual void release() = 0;

 private:
  Budget budget_;
  Operands operands_;
};

}  // namespace fastgemm::torch_ops
