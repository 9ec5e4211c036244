#include "torch/product.h"

#include <stdexcept>
#include <utility>

#include "strategies/strategies.h"
#include "torch/complex.h"
#include "torch/context.h"
#include "torch/first_calls.h"
#include "torch/hooks.h"
#include "torch/kernel_range.h"
#include "torch/launch_row.h"
#include "torch/operand_copy.h"
#include "torch/plans.h"

namespace fastgemm::torch_ops {
namespace {

thread_local std::string_view last_kernel;

template <class Pointer>
Pointer advance(Pointer data, int64_t elements, DType type) {
  return data ? (Pointer)((const char*)data + elements * element_size(type)) : nullptr;
}

OutOfMemory out_of_memory(const Kernel& kernel, const OutOfWorkspace& refusal) {
  return OutOfMemory("fastgemm: out of memory: kernel '" + std::string(kernel.name) +
                     "' needs a workspace of at least " + std::to_string(refusal.needed()) + " bytes, and " +
                     refusal.what());
}

// Launches the kernel for each index of the outer batch dimensions, which one launch does not cover.
void walk(const Loops& loops, const GemmProblem& whole, const Kernel* kernel, const Choice& choice,
          const Place& at) {
  for_each_index(loops, loops.count - 1, [&](const std::array<int64_t, 4>& offset) {
    if (at.context.stopped()) return;
    GemmProblem p = whole;
    p.a.data = advance(whole.a.data, offset[0], p.type);
    p.b.data = advance(whole.b.data, offset[1], p.type);
    p.c.data = advance(whole.c.data, offset[2], p.out_type);
    p.out.data = advance(whole.out.data, offset[3], p.out_type);
    at.context.start_over();
    // Later members of the batch may be aligned differently.
    const bool first = p.a.data == whole.a.data && p.b.data == whole.b.data && p.out.data == whole.out.data;
    if (!first && kernel->rejects) {
      const GemmProblem chosen = strategies::chosen_for(p);
      if (kernel->rejects(chosen)) kernel = &select(chosen, at.device, at.threads, choice);
    }
    kernel = &launch_row(*kernel, p, choice, at);
  });
}

// kernel: null, or one to take instead of the plan's.
void run(const Plan& plan, const ProductCall& call, const TensorRef& out, const Place& at,
         const Kernel* kernel = nullptr) {
  OperandCopy copy_a, copy_b;
  const TensorRef &a = plan.copies_a_to ? copy_a.make(call.a, *plan.copies_a_to, call.packed.is_given())
                                        : call.a,
                  &b = plan.copies_b_to ? copy_b.make(call.b, *plan.copies_b_to) : call.b;
  GemmProblem p = plan.problem;
  p.a.data = a.view.data, p.b.data = b.view.data, p.out.data = out.view.data;
  if (p.c.data) p.c.data = call.c.view.data;
  p.epilogue.bias = call.bias.view.data;
  p.packed = call.packed, p.scales = call.scales;
  if (!kernel) kernel = plan.decision.kernel(at.device, p.type, p.precision);
  if (!kernel)  // this throws the reason
    kernel = &select(strategies::chosen_for(p), at.device, at.threads, call.choice);
  const Operand addend = call.c ? Operand{call.c.tensor, &call.c.view, true} : Operand{};
  at.context.set_operands({{a.tensor, &a.view}, {b.tensor, &b.view}, addend, {out.tensor, &out.view}});
  if (plan.outer)
    walk(*plan.outer, p, kernel, call.choice, at);
  else
    launch_row(*kernel, p, call.choice, at);
}

void require_apart(const ProductCall& call) {
  const View& out = call.out.view;
  require_no_overlap(out, "a", call.a.view), require_no_overlap(out, "b", call.b.view);
  if (call.c && !same_view(call.c.view, out)) require_no_overlap(out, "c", call.c.view);
}

// The result that a plan allocates.
TensorRef new_result(const Plan& plan, const View& a) {
  TensorRef r;
  View& v = r.view = a;
  v.dtype = torch_dtype(plan.problem.out_type), v.dim = int64_t(plan.shape.size());
  v.sizes = plan.shape.data(), v.strides = plan.strides.data();
  r.tensor = empty_tensor(v);
  check(aoti_torch_get_data_ptr(r.tensor, &v.data), "get_data_ptr");
  return r;
}

// Runs a kernel of a plan with a result in memory of its own. The context is a new one: a time limit that
// ends this kernel must not end the call.
void try_out(const Kernel& kernel, const Plan& plan, const ProductCall& call, const TensorRef& scratch) {
  ProductCall again = call;
  again.choice.kernel = kernel.name;
  const bool in_place = call.c && call.out && same_view(call.c.view, call.out.view);
  if (in_place && !plan.copies_result) again.c = scratch;  // a copied result does not overwrite c
  with_context(call.a.view, [&](OpContext& context, Device device, int threads) {
    run(plan, again, scratch, {context, device, threads}, &kernel);
  });
}

// Deletes a tensor unless it is released to the caller.
struct OwnedTensor {
  AtenTensorHandle tensor = nullptr;
  ~OwnedTensor() {
    if (tensor) aoti_torch_delete_tensor_object(tensor);
  }
};

AtenTensorHandle multiply_real(const ProductCall& call) {
  OwnedTensor made;
  with_context(call.a.view, [&](OpContext& context, Device device, int threads) {
    std::shared_ptr<const Plan> plan = plan_of(call, device, threads);
    if (call.out) require_apart(call);
    if (plan->unmeasured && measure_first(call, *plan, device, threads, &try_out)) [[unlikely]]
      plan = plan_of(call, device, threads);
    TensorRef out = call.out;
    if (!call.out || plan->copies_result) out = new_result(*plan, call.a.view), made.tensor = out.tensor;
    if (plan->is_empty) return void(last_kernel = {});
    run(*plan, call, out, {context, device, threads});
    if (plan->copies_result) check(aoti_torch_copy_(call.out.tensor, out.tensor, 0), "copy_");
  });
  return call.out ? nullptr : std::exchange(made.tensor, nullptr);
}

}  // namespace

const Kernel& launch_row(const Kernel& first, const GemmProblem& p, const Choice& choice, const Place& at) {
  std::vector<const Kernel*> tried;
  const auto next = [&](const Kernel* failed) {
    tried.push_back(failed);
    return is_free(choice) ? next_choice(strategies::chosen_for(p), at.device, at.threads, tried) : nullptr;
  };
  for (const Kernel* kernel = &first;;) {
    const Kernel* other = nullptr;
    try {
      const KernelRange range(*kernel);
      strategies::run(*kernel, p, at.context);
      last_kernel = kernel->name;
      return *kernel;
    } catch (const OutOfWorkspace& refusal) {
      other = next(kernel);
      if (!other) throw out_of_memory(*kernel, refusal);
      at.context.start_over(refusal.needed() - 1);
    } catch (const TorchError&) {
      other = next(kernel);
      if (!other) throw;
    }
    kernel = other;
  }
}

AtenTensorHandle multiply(const ProductCall& call) {
  if (!is_complex(call.a.view.dtype)) return multiply_real(call);
  ComplexProduct product(call);
  if (!product.by_row()) multiply_real(product.as_real());
  return product.result();
}

void tell_last_gemm_kernel(std::string_view name) { last_kernel = name; }
std::string_view take_last_gemm_kernel() { return std::exchange(last_kernel, {}); }

}  // namespace fastgemm::torch_ops
