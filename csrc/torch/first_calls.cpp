#include "torch/first_calls.h"

#include <algorithm>
#include <atomic>
#include <optional>

#include "core/can_run.h"
#include "strategies/strategies.h"
#include "torch/hooks.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

constexpr size_t kMost = 6;  // kernels of one product

std::atomic<Measure> measure{nullptr};
std::atomic<bool> all{false};

// A result like the one of a call, in memory of its own: the same sizes, strides and alignment.
class Scratch {
 public:
  Scratch(const ProductCall& call, const Plan& plan) {
    const bool allocated = !call.out || plan.copies_result;
    View& v = out_.view = allocated ? call.a.view : call.out.view;
    if (allocated) {
      v.data = nullptr, v.dtype = torch_dtype(plan.problem.out_type), v.dim = int64_t(plan.shape.size());
      v.sizes = plan.shape.data(), v.strides = plan.strides.data();
    }
    constexpr uintptr_t kAlignment = 256;
    const auto size = uintptr_t(element_size(plan.problem.out_type));
    const auto misaligned = [&](const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment; };
    const int64_t count = extent(v) + int64_t(kAlignment / size), one = 1;
    View line = v;
    line.dim = 1, line.sizes = &count, line.strides = &one;
    const Tensor memory(empty_tensor(line));
    check(aoti_torch_zero_(memory.get()), "zero_");  // which also maps the pages
    check(aoti_torch_get_data_ptr(memory.get(), &line.data), "get_data_ptr");
    const auto shift = int64_t((misaligned(v.data) + kAlignment - misaligned(line.data)) % kAlignment / size);
    check(aoti_torch__reinterpret_tensor(memory.get(), v.dim, v.sizes, v.strides, shift, &out_.tensor),
          "_reinterpret_tensor");
    owned_.emplace(out_.tensor);
    v.data = static_cast<char*>(line.data) + shift * int64_t(size);
  }
  const TensorRef& out() const { return out_; }

  // Elements from the first to the last of a view.
  static int64_t extent(const View& v) {
    int64_t last = 0;
    for (int64_t d = 0; d < v.dim; ++d) last += (v.sizes[d] - 1) * v.strides[d];
    return last + 1;
  }

 private:
  TensorRef out_;
  std::optional<Tensor> owned_;
};

size_t bytes_of_result(const ProductCall& call, const Plan& plan) {
  int64_t elements = 1;
  for (const int64_t size : plan.shape) elements *= size;
  if (call.out && !plan.copies_result) elements = Scratch::extent(call.out.view);
  return size_t(elements) * size_t(element_size(plan.problem.out_type));
}

}  // namespace

void set_measure(Measure function) { measure.store(function, std::memory_order_release); }
void set_tunes_all(bool on) {
  if (all.exchange(on, std::memory_order_acq_rel) != on) tuning_changed();
}
bool tunes_all() { return all.load(std::memory_order_relaxed); }

bool is_unmeasured(const ProductCall& call, const GemmProblem& p, const Decision& decision, Device device,
                   int threads) {
  if (!is_tuned(call) || call.choice.level != 0 || !call.choice.kernel.empty()) return false;
  if (p.k == 0 || p.symmetry.known || device == Device::simt || !measure.load(std::memory_order_acquire))
    return false;
  const Kernel* const taken = decision.kernel(device, p.type, p.precision);
  return taken && taken->role != Role::shortcut &&
         !remembered(tuning_key(strategies::chosen_for(p), device, threads));
}

bool measure_first(const ProductCall& call, const Plan& plan, Device device, int threads,
                   void (*run)(const Kernel&, const Plan&, const ProductCall&, const TensorRef&)) {
  // The plan has no addresses, on which the alignment depends.
  GemmProblem p = plan.problem;
  p.a.data = plan.copies_a_to ? nullptr : call.a.view.data;
  p.b.data = plan.copies_b_to ? nullptr : call.b.view.data;
  p.out.data = plan.copies_result ? nullptr : call.out.view.data;
  if (p.c.data) p.c.data = call.c.view.data;
  const GemmProblem chosen = strategies::chosen_for(p);
  const TuningKey key = tuning_key(chosen, device, threads);
  const std::vector<const Kernel*> kernels = likely_kernels(chosen, device, threads, kMost);
  if (kernels.size() < 2) {
    remember(key, kernels.front()->name, true);
    return true;
  }
  std::optional<Scratch> scratch;
  const auto run_named = [&](std::string_view name) {
    const auto kernel = std::ranges::find(kernels, name, &Kernel::name);
    try {
      if (!scratch) scratch.emplace(call, plan);
    } catch (const std::exception& error) {  // torch throws its own exception if memory runs out
      throw CannotRun(std::string("it cannot run here: ") + error.what());
    }
    try {
      run(**kernel, plan, call, scratch->out());
    } catch (const OutOfMemory& error) {
      throw CannotRun(std::string("it cannot run here: ") + error.what());
    } catch (const TorchError& error) {
      throw CannotRun(std::string("it cannot run here: ") + error.what());
    }
  };
  return measure.load(std::memory_order_acquire)(
      {key, kernels, bytes_of_result(call, plan), call.a.view.device_index, run_named});
}

}  // namespace fastgemm::torch_ops
