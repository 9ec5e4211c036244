// torch.ops.fastgemm.gemm: checks the arguments, finds the shape of the result, walks the
// batch, and hands each (batched) matrix product to the kernel that the table names.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "core/asked.h"
#include "core/select.h"
#include "torch/context.h"
#include "torch/gemm_plan.h"
#include "torch/kernel_range.h"
#include "torch/ops.h"

namespace fastgemm::torch_ops {
namespace {

[[noreturn]] void bad_value(const std::string& text) {
  throw std::invalid_argument("fastgemm.gemm: " + text);
}

struct Arguments {
  Tensor a, b;
  std::optional<Tensor> c;
  double alpha = 1.0;
  std::optional<double> beta;
  bool trans_a = false, trans_b = false;
  int64_t level = kNoLevel;
  std::optional<std::string> kernel, precision;
  std::optional<int32_t> out_dtype;

  Choice choice() const { return {level_of(level), kernel_of(kernel)}; }
  // In the order of the schema in library.cpp; braces evaluate from left to right.
  Arguments(Tensor a_, Tensor b_) : a(std::move(a_)), b(std::move(b_)) {}
  explicit Arguments(StackReader s)
      : a(s.tensor()),
        b(s.tensor()),
        c(s.optional_tensor()),
        alpha(s.number()),
        beta(s.optional_number()),
        trans_a(s.flag()),
        trans_b(s.flag()),
        level(s.integer(kNoLevel)),
        kernel(s.optional_string()),
        precision(s.optional_string()),
        out_dtype(s.optional_dtype()) {}
};

Precision precision_of(const std::optional<std::string>& given, DType type) {
  const std::string name = given.value_or("ieee");
  if (name == "ieee") return Precision::ieee;
  constexpr std::string_view others[] = {"tf32", "bf16x3", "bf16x6", "fp16x3"};
  for (int i = 0; i < 4; ++i) {
    if (name != others[i]) continue;
    if (type != DType::f32) bad_value("precision='" + name + "' is for float32 operands only");
    return static_cast<Precision>(i + 1);
  }
  bad_value("precision must be 'ieee', 'tf32', 'bf16x3', 'bf16x6', 'fp16x3' or None, got '" + name + "'");
}

DType result_type(DType type, const std::optional<int32_t>& asked) {
  const DType usual = type == DType::i8 ? DType::i32 : type;
  if (!asked || *asked == torch_dtype(usual)) return usual;
  const bool half = type == DType::f16 || type == DType::bf16;
  if (half && *asked == torch_dtype(DType::f32)) return DType::f32;
  bad_value("out_dtype=" + dtype_text(*asked) + " is not available for " + std::string(to_string(type)) +
            " operands; accepted: " + dtype_text(torch_dtype(usual)) + (half ? " and torch.float32" : ""));
}

double whole(const char* name, double value, DType type) {
  if (is_integer(type) && (value != std::nearbyint(value) || std::abs(value) >= 0x1p53))
    bad_value(std::string(name) + " must be a whole number for integer operands, got " +
              std::to_string(value));
  return value;
}

template <class Pointer>
Pointer advance(Pointer data, int64_t elements, DType type) {
  return data ? (Pointer)((const char*)data + elements * element_size(type)) : nullptr;
}

thread_local std::string_view last_kernel;

std::runtime_error out_of_memory(const Kernel& kernel, const OutOfWorkspace& refusal) {
  return std::runtime_error("fastgemm: out of memory: kernel '" + std::string(kernel.name) +
                            "' needs a workspace of at least " + std::to_string(refusal.needed()) +
                            " bytes, and " + refusal.what());
}

// Where memory is short, a choice that was left to the library goes on to kernels that need less. So it does
// where torch's own product fails: cuBLAS's workspace is torch's affair, and torch does not say what it
// lacked. Returns the kernel that ran.
const Kernel& launch(const Kernel& first, const GemmProblem& p, const Choice& choice, OpContext& context,
                     Device device, int threads) {
  std::vector<const Kernel*> tried;
  const auto next = [&](const Kernel* failed) {
    tried.push_back(failed);
    return is_free(choice) ? next_choice(p, device, threads, tried) : nullptr;
  };
  for (const Kernel* kernel = &first;;) {
    const Kernel* other = nullptr;
    try {
      const KernelRange range(*kernel);
      kernel->gemm(p, context);
      last_kernel = kernel->name;
      return *kernel;
    } catch (const OutOfWorkspace& refusal) {
      other = next(kernel);
      if (!other) throw out_of_memory(*kernel, refusal);
      context.start_over(refusal.needed() - 1);
    } catch (const TorchError&) {
      other = next(kernel);
      if (!other) throw;
    }
    kernel = other;
  }
}

void run(const Gemm& g, const Choice& choice, OpContext& context, Device device, int threads) {
  const int outer = std::max(g.loops.count - 1, 0);
  const GemmProblem whole = g.innermost();
  const Kernel* kernel = &select(whole, device, threads, choice);
  for_each_index(g.loops, outer, [&](const std::array<int64_t, 4>& offset) {
    GemmProblem p = whole;
    p.a.data = advance(whole.a.data, offset[0], p.type);
    p.b.data = advance(whole.b.data, offset[1], p.type);
    p.c.data = advance(whole.c.data, offset[2], p.out_type);
    p.out.data = advance(whole.out.data, offset[3], p.out_type);
    context.start_over();
    // Further members of the batch may be aligned otherwise.
    const bool first = p.a.data == whole.a.data && p.b.data == whole.b.data && p.out.data == whole.out.data;
    if (!first && kernel->rejects && kernel->rejects(p)) kernel = &select(p, device, threads, choice);
    kernel = &launch(*kernel, p, choice, context, device, threads);
  });
}

bool is_empty(const Gemm& g) {
  for (const int64_t n : g.result_shape())
    if (n == 0) return true;
  return false;
}

// Computes into `given`, or into a new tensor when there is none; returns the tensor that holds the result.
Tensor gemm_into(const Arguments& args, const Tensor* given) {
  const View a(args.a), b(args.b);
  Gemm g = describe(a, b, args.trans_a, args.trans_b);
  GemmProblem& p = g.problem;
  p.out_type = result_type(p.type, args.out_dtype);
  p.precision = precision_of(args.precision, p.type);
  const double alpha = whole("alpha", args.alpha, p.type),
               beta = whole("beta", args.beta.value_or(args.c ? 1.0 : 0.0), p.type);
  if (!args.c && beta != 0.0) bad_value("beta is " + std::to_string(beta) + " but there is no c");
  std::optional<View> c;
  if (args.c) add_c(g, c.emplace(*args.c), a);
  set_scales(p, alpha, beta);

  const Tensor out = given ? *given : empty_contiguous(g.result_shape(), torch_dtype(p.out_type), a);
  const View o(out);
  if (given) {
    require_same_device("out", o, "a", a);
    require_out(o, g.result_shape(), torch_dtype(p.out_type));
    require_no_overlap(o, "a", a), require_no_overlap(o, "b", b);
    if (c && !same_view(*c, o)) require_no_overlap(o, "c", *c);
  }
  if (is_empty(g)) {
    last_kernel = {};
    // a wrong level or kernel is wrong here too
    with_context(a, [&](Context&, Device device, int threads) { select(p, device, threads, args.choice()); });
    return out;
  }
  p.out = matrix_of<Matrix>(o, false);
  if (p.out.row_stride != 1 && p.out.col_stride != 1) {
    // Kernels write rows or columns; an out with neither takes a copy of a contiguous result.
    const Tensor result = gemm_into(args, nullptr);
    check(aoti_torch_copy_(out.get(), result.get(), 0), "copy_");
    return out;
  }
  const bool copies_a = is_scattered(p.a, p.m, p.k), copies_b = is_scattered(p.b, p.k, p.n);
  if (copies_a || copies_b) {
    Arguments again = args;
    if (copies_a) again.a = contiguous_matrices(args.a, a);
    if (copies_b) again.b = contiguous_matrices(args.b, b);
    return gemm_into(again, &out);
  }
  plan_batches(g, a, b, p.c.data ? &*c : nullptr, o);
  const Choice choice = args.choice();
  with_context(a, [&](OpContext& context, Device device, int threads) {
    const Operand addend = c ? Operand{args.c->get(), &*c, true} : Operand{};
    context.set_operands({{args.a.get(), &a}, {args.b.get(), &b}, addend, {out.get(), &o}});
    run(g, choice, context, device, threads);
  });
  return out;
}

}  // namespace

std::string_view take_last_gemm_kernel() { return std::exchange(last_kernel, {}); }

void gemm(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  return_tensor(stack, gemm_into(args, nullptr));
}

void matmul(StableIValue* stack, uint64_t, uint64_t) {
  StackReader s(stack);
  Tensor a = s.tensor(), b = s.tensor();
  return_tensor(stack, gemm_into({std::move(a), std::move(b)}, nullptr));
}

void gemm_out(StableIValue* stack, uint64_t inputs, uint64_t) {
  const Tensor out = StackReader(stack + inputs - 1).tensor();
  const Arguments args{StackReader(stack)};
  gemm_into(args, &out);
}

}  // namespace fastgemm::torch_ops
