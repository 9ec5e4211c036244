// Scratch memory for parts of a product that are computed one after the other.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "core/budget.h"
#include "core/context.h"

namespace fastgemm {

// Scratch memory shared by panels, blocks or parts of a batch. After begin_again(), allocate() returns the
// same memory in the same order, unless a request is larger than before.
class ReusedWorkspace : public Context {
 public:
  // `restartable`: the result may be computed again after parts of it were written, because it is never read.
  explicit ReusedWorkspace(Context& owner, bool restartable = false)
      : owner_(owner), restartable_(restartable) {}
  void begin_again() { next_ = 0, ++begun_; }

  void* stream() const override { return owner_.stream(); }
  int threads() const override { return owner_.threads(); }
  void parallel(int64_t tasks, Task task) override { owner_.parallel(tasks, task); }
  bool stopped() override { return owner_.stopped(); }
  void* allocate(size_t bytes) override {
    if (next_ == blocks_.size()) blocks_.push_back({});
    Block& block = blocks_[next_++];
    if (block.bytes < bytes) block = {more(bytes), bytes};
    return block.data;
  }
  void callers_gemm(const GemmProblem& p) override { owner_.callers_gemm(p); }
  void callers_transpose(const TransposeProblem& p) override { owner_.callers_transpose(p); }

 private:
  struct Block {
    void* data;
    size_t bytes;
  };

  // After a part of the result is written, the call must not fall back to another kernel: out may be the c
  // that is added.
  void* more(size_t bytes) {
    try {
      return owner_.allocate(bytes);
    } catch (const OutOfWorkspace& refusal) {
      if (begun_ <= 1 || restartable_) throw;
      throw std::runtime_error("fastgemm: out of memory: " + std::string(refusal.what()) +
                               "; a part of the result is written");
    }
  }

  Context& owner_;
  bool restartable_;
  std::vector<Block> blocks_;
  size_t next_ = 0;
  int begun_ = 0;
};

}  // namespace fastgemm
