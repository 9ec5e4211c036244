#include "core/can_run.h"

#include <algorithm>

#include "core/names.h"
#include "core/tuning.h"

namespace fastgemm {
namespace {

const char* rounds_to(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return "it rounds float32 operands to tf32, which needs precision=\"tf32\"";
    case Precision::bf16x3:
      return "its float32 products have the precision \"bf16x3\" alone";
    case Precision::fp16x3:
      return "its float32 products have the precision \"fp16x3\" alone";
    default:
      return nullptr;
  }
}

// Why a row cannot compute a problem, regardless of the framework's flags.
const char* why_unfit(const Kernel& k, const GemmProblem& p) {
  if (!k.takes(p.packed))
    return p.packed.is_given() ? "it does not take packed weights of this format"
                               : "it takes packed weights only";
  if (p.groups.rows && !k.gathers) return "it does not gather rows of a";
  if (scales_parts(p) && !k.scales_parts) return "it does not multiply sums of parts of k by scales";
  if (p.gated && !k.gates) return "it does not multiply a gate by a value";
  if (!k.takes(p.groups))
    return p.groups.are_given() ? "it does not take groups of uneven size"
                                : "it takes groups of uneven size only";
  if (p.type == DType::f32 && k.precision != Precision::ieee && k.precision != p.precision)
    return rounds_to(k.precision);
  return k.rejects ? k.rejects(p) : nullptr;
}
template <class Problem>
const char* why_unfit(const Kernel&, const Problem&) {
  return nullptr;
}

// Whether a product would be rounded to 16 bits before its epilogue pass, and so twice. Such a row runs only
// by name; a level or level=None does not pick it.
bool rounds_before_pass(const Kernel& k, const GemmProblem& p) {
  if (!needs_pass(k, p) || (p.out_type != DType::f16 && p.out_type != DType::bf16)) return false;
  GemmProblem wide = p;
  wide.out_type = DType::f32;
  return k.rejects && k.rejects(wide);
}
template <class Problem>
bool rounds_before_pass(const Kernel&, const Problem&) {
  return false;
}

// Says why the framework's global flags exclude its row; null if they do not.
const char* why_flagged(const Kernel& k, const GemmProblem& p) {
  if (!is_framework(k) || !depends_on_flags(k.op, k.device, p.type)) return nullptr;
  if (framework_computes(k.device, p.type, p.precision)) return nullptr;
  if (p.type != DType::f32)
    return "torch's global flags let it round partial sums to 16 bits "
           "(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction and its bf16 sibling), or let "
           "it refuse (torch.use_deterministic_algorithms without CUBLAS_WORKSPACE_CONFIG)";
  return k.device == Device::cpu ? "torch's global flags let it round float32 operands "
                                   "(torch.backends.mkldnn.matmul.fp32_precision)"
                                 : "torch's global flags give its float32 products another precision "
                                   "(torch.backends.cuda.matmul.fp32_precision), or let it refuse "
                                   "(torch.use_deterministic_algorithms without CUBLAS_WORKSPACE_CONFIG)";
}
template <class Problem>
const char* why_flagged(const Kernel&, const Problem&) {
  return nullptr;
}

// Nothing is multiplied, so the time of a row does not matter, and it is not known.
bool is_empty(const GemmProblem& p) { return p.batch == 0 || p.m == 0 || p.n == 0 || p.k == 0; }

// The time of the epilogue pass after a product. It reads and writes C once; the estimate is 8 bytes an
// element, 16 for float64. `start` is the cost of a launch.
double pass_seconds(const Kernel& k, const GemmProblem& p, double bandwidth, double start) {
  if (!needs_pass(k, p)) return 0;
  const double bytes = double(p.batch) * double(p.m) * double(p.n) * (p.out_type == DType::f64 ? 16 : 8);
  return start + bytes / bandwidth;
}

// On a CPU an own kernel has to be predicted to be faster than the framework by this much: if both are close,
// the prediction does not tell which is faster, and the framework's kernel keeps its results unchanged. For
// products that the constants were not fitted to, 1.03 and 1.08 give nearly equal times in the mean, but with
// 1.08 half as many are slower than the framework by more than 3 % (benchmarks/fits/check_cpu_choices.py).
constexpr double kWorthLeaving = 1.08;

}  // namespace

bool is_framework(const Kernel& k) { return k.name == "torch"; }

bool depends_on_flags(Op op, Device device, DType type) {
  const bool half = type == DType::f16 || type == DType::bf16;
  return op == Op::gemm && (type == DType::f32 || (half && device == Device::cuda));
}

double predicted(const Kernel& k, const GemmProblem& p) {
  if (!k.predict || is_empty(p)) return std::numeric_limits<double>::infinity();
  constexpr double kOfBandwidth = 0.75;  // the same as for the mirror pass of symmetric results
  const Gpu& gpu = current_gpu();
  return k.predict(p, gpu) + pass_seconds(k, p, kOfBandwidth * gpu.bandwidth, 2e-6);
}

double predicted(const Kernel& k, const GemmProblem& p, int threads) {
  if (is_empty(p)) return std::numeric_limits<double>::infinity();
  const Cpu& cpu = current_cpu();
  const double seconds =
      k.predict_on_cpu(p, cpu, threads) + pass_seconds(k, p, std::max(cpu.bandwidth, 1e9), 0.0);
  return is_framework(k) ? seconds / kWorthLeaving : seconds;
}

template <class Problem>
std::string obstacle(const Kernel& k, const Problem& p) {
  if (const char* why = k.why_unavailable()) return why;
  if (!contains(k.dtypes, p.type)) return "it does not take " + std::string(to_string(p.type));
  if (const char* why = why_unfit(k, p)) return why;
  if (const char* why = why_flagged(k, p)) return why;
  return {};
}

template <class Problem>
bool can_run(const Kernel& k, const Problem& p, bool flags_allow) {
  return (flags_allow || !is_framework(k) || !depends_on_flags(k.op, k.device, p.type)) &&
         !k.why_unavailable() && contains(k.dtypes, p.type) && !why_unfit(k, p) && !rounds_before_pass(k, p);
}
template <class Problem>
bool can_run(const Kernel& k, const Problem& p) {
  return can_run(k, p, true) && !why_flagged(k, p);
}

template std::string obstacle(const Kernel&, const GemmProblem&);
template bool can_run(const Kernel&, const GemmProblem&, bool);
template bool can_run(const Kernel&, const GemmProblem&);
template std::string obstacle(const Kernel&, const TransposeProblem&);
template bool can_run(const Kernel&, const TransposeProblem&, bool);
template bool can_run(const Kernel&, const TransposeProblem&);
template std::string obstacle(const Kernel&, const AddProblem&);
template bool can_run(const Kernel&, const AddProblem&, bool);
template bool can_run(const Kernel&, const AddProblem&);

bool needs_pass(const Kernel& k, const GemmProblem& p) {
  return p.finishes() && (p.k == 0 || !k.fuses || !k.fuses(p) || (p.scales.asked && !k.scales));
}

}  // namespace fastgemm
