// Plans products: checks them, describes their layout and
// chooses a kernel, once for all calls of one signature.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "torch/gemm_plan.h"
#include "torch/product.h"

namespace fastgemm::torch_ops {

inline constexpr std::string_view kTorchRow = "torch";

// The table's row of torch's own product; null on the simulator, which runs no library.
const Kernel* torch_row(Device);

// Everything about a call that its plan depends on, as words that are compared bit by bit: the operands, of
// whose addresses the alignment alone counts, and the state of the library.
class Signature {
 public:
  Signature(const ProductCall&, Device, int threads, bool by_torch);

  // Plans are not kept for tensors of so many dimensions that they do not fit.
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

// A planned call. It holds no addresses: those of each call are filled in when it runs.
struct Plan {
  enum class Way : uint8_t {
    launch,
    nothing,        // the result has no elements
    copy_operands,  // an operand without a unit stride is copied first
    copy_result,    // out has no unit stride, and takes a copy of a contiguous result
    widen,          // no kernel that may run takes this type of product: operands are widened (integers.h)
  };
  Way way = Way::launch;
  bool copies_a = false, copies_b = false;
  GemmProblem problem;  // of the innermost batch dimension
  Decision decision;
  std::vector<int64_t> shape, strides;  // of the result; strides where there is no out
  std::unique_ptr<const Loops> outer;   // null: one launch computes everything
};

// On a CPU a float32 product whose precision and kernel are left open is torch's where its flags
// (torch.backends.mkldnn.matmul.fp32_precision) let that compute in less than float32: no other row does.
// Throws as multiply() does. A plan never changes, and each thread keeps its last ones.
std::shared_ptr<const Plan> plan_of(const ProductCall&, Device, int threads);

}  // namespace fastgemm::torch_ops
