#include "torch/complex_rows.h"

#include <algorithm>
#include <unordered_map>

#include "core/cpu.h"
#include "core/reused_workspace.h"
#include "core/triangle.h"
#include "torch/complex.h"
#include "torch/context.h"
#include "torch/hooks.h"
#include "torch/kernel_range.h"
#include "torch/plans.h"

namespace fastgemm::torch_ops {
namespace {

Precision precision_of(const ProductCall& call) { return call.precision.value_or(Precision::ieee); }

// The type of the same size, because kernels have no complex types.
DType bytes_of(int32_t dtype) {
  return aoti_torch_dtype_element_size(dtype) == 8 ? DType::bits64 : DType::bits128;
}

// Memory that torch did not allocate may be aligned for the parts of a complex number, but not for the whole
// number.
bool is_aligned(const TensorRef& t) {
  return !t || reinterpret_cast<uintptr_t>(t.view.data) % aoti_torch_dtype_element_size(t.view.dtype) == 0;
}

// Why torch cannot compute a product; null if it can.
const char* why_not(const Kernel& row, const ProductCall& call, Device device) {
  const DType part = arithmetic_type("a", part_dtype(call.a.view.dtype));
  if (part == DType::f16) return "torch does not multiply complex32 matrices";
  if (const char* why = row.why_unavailable()) return why;
  for (const TensorRef* t : {&call.a, &call.b, &call.c, &call.out})
    if (!is_aligned(*t)) return "a complex matrix starts between two numbers";
  const Precision precision = precision_of(call);
  // On a CPU torch's flags apply to oneDNN's products; complex products are not among them.
  if (device == Device::cpu ? precision == Precision::ieee : framework_computes(device, part, precision))
    return nullptr;
  return device == Device::cpu
             ? "torch's complex products have the precision \"ieee\" alone"
             : "torch's global flags give its products another precision than was asked for "
               "(torch.backends.cuda.matmul.fp32_precision), or let it refuse "
               "(torch.use_deterministic_algorithms without CUBLAS_WORKSPACE_CONFIG)";
}

// The real product that replaces a complex one, and the copies before it.
struct RealProduct {
  GemmProblem product;
  double bytes_before = 0;  // bytes that the copies read and write
  int passes = 1;

  RealProduct(const ProductCall& call, const Gemm& g) {
    const View& b = call.b.view;
    int64_t members = 1, members_of_b = 1;
    for (size_t d = 0; d + 2 < g.dim; ++d) members *= g.shape[d];
    for (int64_t d = 3; d <= b.dim; ++d)
      if (b.stride(d) != 0) members_of_b *= b.size(d);
    GemmProblem& p = product;
    p = g.problem;
    p.precision = precision_of(call);
    const double size = double(element_size(p.type));
    bytes_before = 6 * size * double(members_of_b) * double(p.k) * double(p.n);
    if (p.a.col_stride != 1) {
      ++passes;
      bytes_before += 4 * size * double(members) * double(p.m) * double(p.k);
    }
    // If all members share b, the batch is one tall product.
    if (members_of_b == 1 && !call.symmetry.known) p.m *= std::exchange(members, 1);
    p.batch = members, p.n *= 2, p.k *= 2;
    p.a = {nullptr, p.k, 1, p.m * p.k}, p.b = {nullptr, p.n, 1, p.k * p.n};
    p.out = {nullptr, p.n, 1, p.m * p.n}, p.c = {};
    if (p.n == 2 * p.m) p.symmetry = call.symmetry;
  }

  // The predicted time of the real product on a GPU, copies included.
  double seconds(const Kernel& kernel, const Gpu& gpu) const {
    constexpr double kLaunch = 2.5e-6;
    return kernel.predict(product, gpu) + bytes_before / gpu.bandwidth + passes * kLaunch;
  }

  // The predicted time of torch's complex product on a GPU: the library's time for the same number of real
  // operations. Matrices of gigabytes take longer: on an H200 1.2 times as long with 3 GiB of complex128, and
  // 1.05 times with 0.8 GiB.
  double seconds_of_torch(const Kernel& row, const Gpu& gpu) const {
    const GemmProblem& p = product;
    const double elements = double(p.m) * double(p.k + p.n) + double(p.k) * double(p.n) / 2;
    const bool large = elements * double(p.batch) * element_size(p.type) > 0x1p31;
    return row.predict(p, gpu) * (large ? 1.2 : 1.0);
  }
};

// Whether a CPU computes only the lower triangle of a symmetric result, in blocks (core/triangle.h). This
// must pay for the copy to the upper triangle and for the additional calls.
constexpr int64_t kLeastBlock = 128;
bool is_worth_halving(const ProductCall& call, const Gemm& g) {
  constexpr int64_t kLeastExtent = 384, kLeastTerms = 64, kLeastTermsOfBatch = 128;
  if (!call.symmetry.known || !is_free(call.choice)) return false;
  if (call.a.view.device_type != aoti_torch_device_type_cpu()) return false;
  return g.problem.m >= kLeastExtent && g.problem.k >= (g.dim > 2 ? kLeastTermsOfBatch : kLeastTerms);
}

// If the predictions are this close, torch's product is taken, because it needs no scratch memory.
constexpr double kClose = 1.05;

bool is_faster_on_gpu(const Kernel& row, const RealProduct& own, const Choice& choice) {
  const Gpu& gpu = current_gpu();
  const Kernel& kernel = select(own.product, Device::cuda, 0, choice);
  // If the library is also the fastest for the real product, its complex product saves copying B.
  if (kernel.level == row.level || !kernel.predict) return true;
  return own.seconds_of_torch(row, gpu) < kClose * own.seconds(kernel, gpu);
}

// Keeps the answers, because predictions take longer than a small product.
class Answers {
 public:
  template <class Find>
  bool at(const TuningKey& key, const Find& find) {
    constexpr size_t kMost = 4096;
    if (const uint64_t version = tuning_version(); version_ != version || found_.size() >= kMost)
      found_.clear(), version_ = version;
    if (const auto it = found_.find(key); it != found_.end()) return it->second;
    return found_[key] = find();
  }

 private:
  uint64_t version_ = 0;
  std::unordered_map<TuningKey, bool, TuningKeyHash> found_;
};

// Whether MKL's complex product is expected to be faster than this library's (complex_tile.h). On a Zen 4
// with AVX-512 it is slower. On a Zen 5 it takes twice as long, because MKL does not use the 64-byte vectors
// there. MKL is faster for few rows or columns, and for small products (measured at commits aed1783 and
// c069f11). Other processors were not measured; MKL is chosen on them.
bool is_faster_on_cpu(const ProductCall& call, const Gemm& g) {
  const GemmProblem& p = g.problem;
  if (call.symmetry.known && !is_worth_halving(call, g)) return true;
  const Cpu& cpu = current_cpu();
  const bool is_measured = cpu.isa == Isa::avx512 && cpu.model.starts_with("AuthenticAMD");
  if (!is_measured) return true;
  struct Least {
    int64_t rows, columns, edge;
  };
  const auto [rows, columns, edge] = cpu.vector_issue > 1 ? Least{8, 12, 96} : Least{64, 16, 160};
  return p.m < rows || p.n < columns || double(p.m) * double(p.n) * double(p.k) < double(edge * edge * edge);
}

bool is_faster(const Kernel& row, const ProductCall& call, const Gemm& g, Device device, int threads) {
  if (device == Device::cpu) return is_faster_on_cpu(call, g);
  if (precision_of(call) != Precision::ieee) return false;
  const RealProduct own(call, g);
  TuningKey key = tuning_key(own.product, device, threads);
  key.a_transposed = own.passes > 1;
  thread_local Answers answers;
  return answers.at(key, [&] { return is_faster_on_gpu(row, own, call.choice); });
}

bool is_empty(const ProductCall& call, const Gemm& g) {
  return call.alpha == 0.0 || g.problem.k == 0 ||
         std::ranges::find(g.result_shape(), 0) != g.result_shape().end();
}

// torch's row, if the call names it or it is expected to be faster; else null.
const Kernel* torch_for(const ProductCall& call, const Gemm& g, Device device, int threads, bool named) {
  const Kernel* row = torch_row(device);
  if (!row) return nullptr;
  const char* why = why_not(*row, call, device);
  if (why && named)
    throw CannotRun("kernel 'torch' cannot run here: " + std::string(why) + " (gemm on " +
                    std::string(to_string(device)) + " in " + dtype_text(call.a.view.dtype) + ")");
  const bool takes = !why && !is_empty(call, g);
  return takes && (named || is_faster(*row, call, g, device, threads)) ? row : nullptr;
}

}  // namespace

const Kernel* row_for(const ProductCall& call, const Gemm& g) {
  const bool named = call.choice.kernel == kTorchRow && (call.choice.level == 0 || call.choice.level == 7);
  const DType part = arithmetic_type("a", part_dtype(call.a.view.dtype));
  // A wrong precision is an error; multiply() reports it.
  const Precision precision = precision_of(call);
  if (precision != Precision::ieee && (part != DType::f32 || type_of(precision) != part)) return nullptr;
  const Kernel* chosen = nullptr;
  with_context(call.a.view, [&](Context&, Device device, int threads) {
    if (named || is_free(call.choice)) chosen = torch_for(call, g, device, threads, named);
    if (chosen || named || device != Device::cpu || part == DType::f16 || is_empty(call, g)) return;
    const Choice level6{.level = 6};
    const Kernel& own =
        select(RealProduct(call, g).product, device, threads, is_free(call.choice) ? level6 : call.choice);
    // A tile has 8 or 16 columns. With fewer columns, the real product is faster: it streams A (few_rows.h).
    constexpr int64_t kFewColumns = 8;
    if (own.complex && g.problem.n >= kFewColumns) chosen = &own;
  });
  return chosen;
}

bool multiply_by_row(const Kernel& row, const ProductCall& call, Gemm g, const TensorRef& c,
                     const TensorRef& out) {
  const View &a = call.a.view, &b = call.b.view;
  GemmProblem& whole = g.problem;
  whole.c = {};
  if (c) {
    View parts = c.view;
    parts.dtype = torch_dtype(whole.type);
    add_c(g, parts, a);
  }
  set_scales(whole, call.alpha, c ? call.beta.value_or(1.0) : 0.0);
  whole.out = matrix_of<Matrix>(out.view, false);
  const bool halves = is_worth_halving(call, g);
  whole.symmetry.known = halves;  // plan_batches then does not merge the batch into rows
  plan_batches(g, a, b, c ? &c.view : nullptr, out.view);
  whole = g.innermost();
  whole.type = whole.out_type = bytes_of(a.dtype);
  whole.conjugates_a = is_conjugated(call.a.tensor), whole.conjugates_b = is_conjugated(call.b.tensor);
  const int64_t bytes = element_size(whole.type);
  with_context(a, [&](OpContext& context, Device, int) {
    // Marked as views, so that autograd records nothing of what torch computes inside.
    const auto operand = [](const TensorRef& t) { return t ? Operand{t.tensor, &t.view, true} : Operand{}; };
    context.set_operands({operand(call.a), operand(call.b), operand(c), operand(out)});
    const KernelRange range(row);
    ReusedWorkspace workspace(context, whole.c.data != whole.out.data);
    for_each_index(g.loops, std::max(g.loops.count - 1, 0), [&](const std::array<int64_t, 4>& offset) {
      const auto moved = [&](auto& m, size_t i) {
        if (m.data) m.data = (decltype(m.data))((const char*)m.data + offset[i] * bytes);
      };
      GemmProblem p = whole;
      p.a.data = a.data, p.b.data = b.data, p.out.data = out.view.data;
      moved(p.a, 0), moved(p.b, 1), moved(p.c, 2), moved(p.out, 3);
      const auto multiply = [&](const GemmProblem& one, bool) {
        workspace.begin_again();
        row.gemm(one, workspace);
      };
      halves ? for_each_block(p, kLeastBlock, multiply) : multiply(p, false);
    });
    tell_last_gemm_kernel(row.name);
  });
  return halves;
}

}  // namespace fastgemm::torch_ops
