// How much workspace a product takes whose operands are cut into planes, and how the panels of C that do not
// have it all at once share it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/budget.h"
#include "core/context.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The planes that exist at a time take at most 2 GiB, whatever the size of the product: a larger product
// is computed in panels of C (planes/pieces.cuh), its k some segments at a time, a batch in pieces. The row
// int8x10 rejects a k for which the planes of a single tile would take more (rules.h). A product of more
// than one segment also has the sums of a panel of C in the workspace.
inline constexpr int64_t kMostPlaneBytes = int64_t{2} << 30;

#if defined(__CUDACC__)
inline int64_t most_plane_bytes() { return kMostPlaneBytes; }
#else
// The simulator's module exports the limit: tests lower it, so that small products have panels, pieces and
// groups of segments.
extern "C" {
[[gnu::visibility("default"), gnu::used]] inline int64_t fastgemm_most_plane_bytes = kMostPlaneBytes;
}
inline int64_t most_plane_bytes() { return fastgemm_most_plane_bytes; }
#endif

// The workspace that panels and pieces of a batch share: after begin_again() allocate() returns the same
// memory in the same order, as long as no allocation is larger than the one before.
class ReusedWorkspace : public Context {
 public:
  explicit ReusedWorkspace(Context& owner) : owner_(owner) {}
  void begin_again() { next_ = 0, ++begun_; }

  void* stream() const override { return owner_.stream(); }
  void* allocate(size_t bytes) override {
    if (next_ == blocks_.size()) blocks_.push_back({});
    Block& block = blocks_[next_++];
    if (block.bytes < bytes) block = {more(bytes), bytes};
    return block.data;
  }
  void torch_gemm(const GemmProblem& p) override { owner_.torch_gemm(p); }
  void torch_transpose(const TransposeProblem& p) override { owner_.torch_transpose(p); }

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
      if (begun_ <= 1) throw;
      throw std::runtime_error("fastgemm: out of memory: " + std::string(refusal.what()) +
                               "; a part of the result is written");
    }
  }

  Context& owner_;
  std::vector<Block> blocks_;
  size_t next_ = 0;
  int begun_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
