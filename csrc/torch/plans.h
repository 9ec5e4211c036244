// Plans products: checks the operands, describes their layout and chooses a kernel. This is done once for all
// calls of one signature.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

inline constexpr std::string_view kTorchRow = "torch";

// The row of torch's own product; null on the simulator, which runs no libraries.
const Kernel* torch_row(Device);

// Everything that the plan of a call depends on: the operands (only the alignment of their addresses) and the
// state of the library. It is stored as 64-bit words that are compared bit by bit.
class Signature {
 public:
  Signature(const ProductCall&, Device, int threads, bool by_torch);

  // False if the tensors have too many dimensions for the array; such plans are not kept.
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

  std::array<int64_t, 52> words_;  // enough for four operands of four dimensions
  size_t count_ = 0;
};

// A planned call. It holds no addresses; they are filled in for each call.
struct Plan {
  bool is_empty = false;  // the result has no elements
  // An operand without a unit stride is copied first. If no allowed kernel takes the type of the product,
  // both are copied to a wider type. The problem then describes the copies.
  std::optional<int32_t> copies_a_to, copies_b_to;  // torch dtypes
  bool copies_result = false;  // out has no unit stride: a contiguous result is computed, then copied to it
  GemmProblem problem;         // includes the innermost batch dimension only
  Decision decision;
  bool unmeasured = false;              // its kernels are to be measured (first_calls.h)
  std::vector<int64_t> shape, strides;  // of the result; strides only if it is allocated
  std::unique_ptr<const Loops> outer;   // null: one launch computes everything
};

// Returns the plan of a call. A plan never changes, and each thread keeps its last plans. On a CPU, torch's
// flags (torch.backends.mkldnn.matmul.fp32_precision) may allow less than float32 precision. A float32
// product without a given precision or kernel is then torch's, because no other row computes that. Throws as
// multiply() does.
std::shared_ptr<const Plan> plan_of(const ProductCall&, Device, int threads);

}  // namespace fastgemm::torch_ops
