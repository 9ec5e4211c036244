// The rows of the strategies, for each device.
#include <array>

#include "core/can_run.h"
#include "core/simulator.h"
#include "core/triangle.h"
#include "strategies/strategies.h"

namespace fastgemm {
namespace strategies {
namespace {

// A strategy runs where the first row of its device does.
template <Device device>
const char* unavailable() {
  const Kernel* first = find_row(kernels_for(device), device, [](const Kernel&) { return true; });
  return first ? first->why_unavailable() : "its device has no rows";
}

template <Device device>
constexpr std::array<Kernel, 3> rows() {
  constexpr bool on_cpu = device == Device::cpu;
  Kernel symmetric{Op::gemm, device, 6, "symmetric", kGemmTypes, on_cpu ? "any CPU" : "sm_80"};
  symmetric.unavailable = unavailable<device>;
  Kernel invariant = symmetric, dequantized = symmetric;

  symmetric.summary = "the lower triangle of a symmetric result by the rows above, and a copy of it";
  symmetric.role = Role::shortcut;
  symmetric.gemm = [](const GemmProblem& p, Context& context) { gemm_symmetric(p, device, context); };
  symmetric.rejects = not_symmetric;
  if (on_cpu)
    symmetric.predict_on_cpu = [](const GemmProblem& p, const Cpu&, int threads) {
      return symmetric_seconds(p, device, threads);
    };
  else
    symmetric.predict = [](const GemmProblem& p, const Gpu&) { return symmetric_seconds(p, device, 0); };

  invariant.name = "invariant";
  invariant.summary =
      "rows of C whose bits do not depend on the other rows: by rows that keep the order of sums";
  invariant.role = Role::companion;
  invariant.gemm = [](const GemmProblem& p, Context& context) { gemm_invariant(p, device, context); };
  invariant.rejects = [](const GemmProblem& p) { return beyond_invariant(p, device); };
  invariant.fuses = [](const GemmProblem& p) { return fuses_invariantly(p, device); };
  invariant.complex = on_cpu;
  invariant.codes = kNoCode | kAllCodes;

  dequantized.name = "dequantized";
  dequantized.summary = "packed weights: converted into scratch memory, then multiplied by the rows above";
  dequantized.dtypes = dtypes(DType::f32, DType::f16, DType::bf16);
  dequantized.codes = kAllCodes;
  dequantized.gemm = [](const GemmProblem& p, Context& context) { gemm_dequantized(p, device, context); };
  dequantized.rejects = [](const GemmProblem& p) { return beyond_dequantized(p, device); };
  dequantized.fuses = [](const GemmProblem& p) { return fuses_dequantized(p, device); };
  dequantized.invariant = [](const GemmProblem&) { return true; };
  if (on_cpu)
    dequantized.predict_on_cpu = [](const GemmProblem& p, const Cpu&, int threads) {
      return dequantized_seconds(p, device, threads);
    };
  else
    dequantized.predict = [](const GemmProblem& p, const Gpu&) { return dequantized_seconds(p, device, 0); };
  return {symmetric, invariant, dequantized};
}

template <Device device>
constexpr std::array<Kernel, 3> kRows = rows<device>();

}  // namespace

Pick fastest(const GemmProblem& p, Device device, int threads) {
  Pick best;
  find_row(kernels_for(device), device, [&](const Kernel& k) {
    if (!contains(k.dtypes, p.type) || !can_run(k, p)) return false;
    const double seconds = k.predict_on_cpu ? predicted(k, p, threads) : predicted(k, p);
    // Rows without a prediction are equal here; on a CPU the last of these rungs is the fastest.
    if (!best.row || seconds < best.seconds || (device == Device::cpu && seconds == best.seconds))
      best = {&k, seconds};
    return false;
  });
  return best;
}

}  // namespace strategies

std::span<const Kernel> strategies_for(Device device) {
  using namespace strategies;
  return device == Device::cpu    ? kRows<Device::cpu>
         : device == Device::cuda ? kRows<Device::cuda>
                                  : kRows<Device::simt>;
}

}  // namespace fastgemm
