// Workspace for parts of a product that are computed one after the other.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "core/budget.h"
#include "core/context.h"

namespace fastgemm {

// The workspace that panels, blocks and pieces of a batch share: after begin_again() allocate() returns the
// same memory in the same order, as long as no allocation is larger than the one before.
class ReusedWorkspace : public Context {
 public:
  // `may_begin_anew`: the result can be computed anew after parts of it were written, for nothing in it is
  // read.
  explicit ReusedWorkspace(Context& owner, bool may_begin_anew = false)
      : owner_(owner), may_begin_anew_(may_begin_anew) {}
  void begin_again() { next_ = 0, ++begun_; }

  void* stream() const override { return owner_.stream(); }
  int threads() const override { return owner_.threads(); }
  void parallel(int64_t tasks, const std::function<void(int64_t)>& task) override {
    owner_.parallel(tasks, task);
  }
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

  // Once a part of the result is written the call must not fall back to another kernel: out may be the c
  // that is added.
  void* more(size_t bytes) {
    try {
      return owner_.allocate(bytes);
    } catch (const OutOfWorkspace& refusal) {
      if (begun_ <= 1 || may_begin_anew_) throw;
      throw std::runtime_error("fastgemm: out of memory: " + std::string(refusal.what()) +
                               "; a part of the result is written");
    }
  }

  Context& owner_;
  bool may_begin_anew_;
  std::vector<Block> blocks_;
  size_t next_ = 0;
  int begun_ = 0;
};

}  // namespace fastgemm
