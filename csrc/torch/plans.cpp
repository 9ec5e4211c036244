#include "torch/plans.h"

#include <unordered_map>

#include "core/simulator.h"
#include "cuda/available.h"
#include "strategies/strategies.h"
#include "torch/first_calls.h"
#include "torch/operand_copy.h"
#include "torch/scalar_types.h"
#include "torch/symmetric.h"

namespace fastgemm::torch_ops {
namespace {

// The alignment of an address, up to 256 bytes. No kernel requires more, and allocators guarantee no more.
int64_t alignment_of(const void* p) {
  constexpr uintptr_t kMost = 256;
  const auto address = reinterpret_cast<uintptr_t>(p);
  return address == 0 ? int64_t(kMost) : int64_t(std::min(address & (~address + 1), kMost));
}

void require_result(const ProductCall& call, const Plan& plan, DType out_type) {
  require_same_device("out", call.out.view, "a", call.a.view);
  require_out(call.out.view, plan.shape, torch_dtype(out_type));
}

// The view of a result that will be allocated, aligned better than any kernel requires.
View allocated_result(Plan& plan, const View& like, int32_t dtype) {
  plan.strides.resize(plan.shape.size());
  int64_t step = 1;
  for (size_t d = plan.shape.size(); d-- > 0; step *= std::max<int64_t>(plan.shape[d], 1))
    plan.strides[d] = step;
  View v = like;
  v.data = nullptr;
  v.sizes = plan.shape.data(), v.strides = plan.strides.data();
  v.dim = int64_t(plan.shape.size());
  v.dtype = dtype;
  return v;
}

void set_epilogue(GemmProblem& p, const ProductCall& call) {
  p.epilogue.activation = call.activation;
  if (!call.bias) return;
  const View& bias = call.bias.view;
  if (bias.dim != 1 || bias.size(1) != p.n)
    bad_value("bias must have shape " + shape_text(std::array{p.n}) + ", got " + shape_text(bias.shape()));
  p.epilogue.has_bias = true, p.epilogue.bias_col_stride = bias.stride(1);
}

// Whether rows are contiguous and do not overlap.
bool has_apart_rows(const ConstMatrix& x, int64_t rows, int64_t cols) {
  return x.col_stride == 1 && (rows == 1 || x.row_stride >= cols);
}

// Whether torch's flags set a precision that only torch's own product has.
bool is_torchs(const ProductCall& call, Device device) {
  const bool open =
      !call.precision && !call.packed.is_given() && (is_free(call.choice) || call.choice.kernel == kTorchRow);
  return open && device == Device::cpu && call.a.view.dtype == torch_dtype(DType::f32) &&
         !framework_computes(device, DType::f32, Precision::ieee);
}

std::shared_ptr<const Plan> make_plan(const ProductCall& call, Device device, int threads, bool by_torch) {
  auto plan = std::make_shared<Plan>();
  View a = call.a.view, b = call.b.view;
  Gemm g = describe(a, b, call.trans_a, call.trans_b);
  GemmProblem& p = g.problem;
  p.type = with_sums(p.type, call.out_dtype);
  p.out_type = result_type_of(p.type, call.out_dtype);
  check_precision(p.precision = call.precision.value_or(Precision::ieee), p.type);
  const double alpha = scale_of("alpha", call.alpha, p.type),
               beta = scale_of("beta", call.beta.value_or(call.c ? 1.0 : 0.0), p.type);
  if (!call.c && beta != 0.0) bad_value("beta is " + number_text(beta) + " but there is no c");
  if (call.c) add_c(g, call.c.view, a);
  set_scales(p, alpha, beta);
  plan->shape.assign(g.result_shape().begin(), g.result_shape().end());
  if (call.out) require_result(call, *plan, p.out_type);

  const Kernel* const torchs = by_torch ? torch_row(device) : nullptr;
  const auto decided = [&] {
    return torchs ? Decision{{torchs, torchs}}
                  : decide(strategies::chosen_for(p), device, threads, call.choice);
  };
  plan->is_empty = std::ranges::find(plan->shape, 0) != plan->shape.end();
  View out = call.out ? call.out.view : allocated_result(*plan, a, torch_dtype(p.out_type));
  p.out = matrix_of<Matrix>(out, false);
  set_epilogue(p, call);
  p.packed = call.packed;
  p.scales.asked = call.scales.asked;
  p.symmetry = symmetry_of(call, p);
  if (is_product_type(p.type) && !is_taken(p, device, call.choice)) {
    p.type = widened(p.type);
    plan->copies_a_to = plan->copies_b_to = torch_dtype(p.type);
  }
  if (plan->is_empty) {
    plan->decision = decided();  // to raise for wrong levels
    plan->problem = p;
    return plan;
  }
  const auto [type_a, type_b] = operand_types(p.type);
  if (is_scattered(p.a, p.m, p.k) || (p.packed.is_given() && !has_apart_rows(p.a, p.m, p.k)))
    plan->copies_a_to = torch_dtype(type_a);
  if (is_scattered(p.b, p.k, p.n)) plan->copies_b_to = torch_dtype(type_b);
  PlannedCopy copy_a, copy_b;
  if (plan->copies_a_to) a = copy_a.of(a, p.packed.is_given()), p.a = matrix_of<ConstMatrix>(a, call.trans_a);
  if (plan->copies_b_to) b = copy_b.of(b), p.b = matrix_of<ConstMatrix>(b, call.trans_b);
  // On a CPU a row's end is rounded by other instructions than its middle, so rows must lie as they are
  // computed.
  const bool invariant = device == Device::cpu && call.choice.kernel == "invariant";
  if ((plan->copies_result = needs_own_result(p) || (invariant && p.out.col_stride != 1))) {
    out = allocated_result(*plan, a, torch_dtype(p.out_type));
    p.out = matrix_of<Matrix>(out, false);
  }
  if (p.symmetry.known && p.out.col_stride != 1) p.out = p.out.transposed();  // the same symmetric matrix
  plan_batches(g, a, b, p.c.data ? &call.c.view : nullptr, out);
  p = g.innermost();
  plan->decision = decided();
  if (g.loops.count > 1) plan->outer = std::make_unique<Loops>(g.loops);
  plan->unmeasured =
      !torchs && !p.packed.is_given() && is_unmeasured(call, p, plan->decision, device, threads);
  plan->problem = p;
  return plan;
}

struct Hash {
  size_t operator()(const Signature& s) const { return s.hash(); }
};

thread_local uint64_t planned = 0;

}  // namespace

const Kernel* torch_row(Device device) {
  for (const Kernel& k : kernels_for(device))
    if (k.op == Op::gemm && k.device == device && k.name == kTorchRow) return &k;
  return nullptr;
}

Signature::Signature(const ProductCall& call, Device device, int threads, bool by_torch) {
  int64_t gpu = 0;
  if (device != Device::cpu)
    gpu = cuda::gpu_here().capability | int64_t(cuda::gpu_here().multiprocessors) << 8;
  const bool onto_c = call.c && call.c.view.data == call.out.view.data;
  add(int64_t(device) | int64_t(call.trans_a) << 8 | int64_t(call.trans_b) << 9 | int64_t(onto_c) << 10 |
      int64_t(call.beta.has_value()) << 11 | int64_t(call.precision.value_or(Precision::ieee)) << 12 |
      int64_t(call.choice.level) << 16 | int64_t(by_torch) << 24 |
      int64_t(call.out_dtype.value_or(-1)) << 32);
  const Symmetry& s = call.symmetry;
  const bool one_matrix = call.a.view.data == call.b.view.data;
  add(int64_t(threads) | int64_t(s.known) << 24 | int64_t(s.asked) << 25 | int64_t(s.conjugated) << 26 |
      int64_t(s.parts) << 27 | int64_t(one_matrix) << 29 | int64_t(is_tuned(call)) << 30 |
      int64_t(call.activation) << 20 | gpu << 32);
  add(int64_t(tuning_version()));
  add(int64_t(call.choice.kernel.empty() ? 0 : std::hash<std::string_view>{}(call.choice.kernel)));
  int64_t bits;
  std::memcpy(&bits, &call.alpha, sizeof(bits)), add(bits);
  const double beta = call.beta.value_or(0.0);
  std::memcpy(&bits, &beta, sizeof(bits)), add(bits);
  for (const TensorRef* t : {&call.a, &call.b, &call.c, &call.out, &call.bias}) add(*t);
  if (call.scales.asked) add(1);
  if (const PackedWeight& w = call.packed; w.is_given()) {
    add(int64_t(w.code) | int64_t(w.scale) << 8 | int64_t(w.zero) << 16 | int64_t(w.units) << 24 |
        int64_t(w.global != nullptr) << 25);
    add(w.group_n), add(w.group_k);
  }
}

void Signature::add(const TensorRef& t) {
  if (!t) return add(-1);
  const View& v = t.view;
  add(v.dim | int64_t(v.dtype) << 8 | int64_t(v.device_type) << 16 | int64_t(uint8_t(v.device_index)) << 24 |
      alignment_of(v.data) << 32);
  for (int64_t d = 0; d < v.dim; ++d) add(v.sizes[d]), add(v.strides[d]);
}

size_t Signature::hash() const {
  uint64_t h = count_;
  for (size_t i = 0; i < count_; ++i) {
    h = (h ^ uint64_t(words_[i])) * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
  }
  return h;
}

std::shared_ptr<const Plan> plan_of(const ProductCall& call, Device device, int threads) {
  constexpr size_t kMost = 4096;  // more than a model has
  thread_local std::unordered_map<Signature, std::shared_ptr<const Plan>, Hash> plans;
  const bool by_torch = is_torchs(call, device);
  const Signature signature(call, device, threads, by_torch);
  if (!signature.fits()) return ++planned, make_plan(call, device, threads, by_torch);
  if (const auto it = plans.find(signature); it != plans.end()) return it->second;
  const uint64_t version = tuning_version();
  ++planned;
  auto plan = make_plan(call, device, threads, by_torch);
  // The choice may have run Python code that changed the measurements.
  if (!plan->decision.keeps || version != tuning_version()) return plan;
  if (plans.size() >= kMost) plans.clear();
  plans.insert_or_assign(signature, plan);
  return plan;
}

uint64_t products_planned() { return planned; }

}  // namespace fastgemm::torch_ops
