// Products of one signature are planned once: checked, laid out, and a kernel chosen for them.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

// Everything about a call that a plan depends on, in words that compare as they are: operands but for their
// addresses, of which the alignment counts, and the state of the library.
class Signature {
 public:
  Signature(const ProductCall&, Device, int threads);

  // Of tensors of so many dimensions that they do not fit, nothing is kept.
  bool fits() const { return count_ <= words_.size(); }
  size_t hash() const;
  bool operator==(const Signature& other) const {
    return count_ == other.count_ &&
           std::memcmp(words_.data(), other.words_.data(), count_ * sizeof(int64_t)) == 0;
  }

 private:
  void add(int64_t word) {
    if (count_ < words_.size()) words_[count_] = word;
    ++count_;
  }
  void add(const TensorRef&);

  std::array<int64_t, 52> words_;  // four operands of four dimensions
  size_t count_ = 0;
};

// Without addresses: those of a call are put in when it runs.
struct Plan {
  enum class Way : uint8_t {
    launch,
    nothing,        // the result has no elements
    copy_operands,  // one that has neither rows nor columns to read in one go is copied first
    copy_result,    // out has neither, and takes a copy of a contiguous result
  };
  Way way = Way::launch;
  bool copies_a = false, copies_b = false;
  GemmProblem problem;  // of the innermost batch dimension
  Decision decision;
  std::vector<int64_t> shape, strides;  // of the result; strides where there is no out
  std::unique_ptr<const Loops> outer;   // null: one launch does it all
};

// Throws as multiply() does. The plan stays as it is; a thread keeps its last ones.
std::shared_ptr<const Plan> plan_of(const ProductCall&, Device, int threads);

}  // namespace fastgemm::torch_ops
