#include <stdexcept>

#include "core/gpu.h"
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/parts/launch_row.h"
#include "cuda/gemm/predict/symmetric.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

struct NamedLauncher {
  std::string_view name;
  void (*launch)(const GemmProblem&, Context&);
};
constexpr NamedLauncher kLaunchers[] = {
#define FASTGEMM_ROW(name, ...) {#name, gemm_##name},
#include "cuda/gemm/rows.def"
};

}  // namespace

void launch_row(const Kernel* row, const GemmProblem& p, Context& context) {
  for (const NamedLauncher& l : kLaunchers)
    if (row && l.name == row->name) return l.launch(p, context);
  throw std::runtime_error("fastgemm: a part of this product has no kernel that can compute it");
}

void launch_fastest_row(const GemmProblem& p, Context& context) {
  const Gpu& gpu = current_gpu();
  // Without a GPU nothing can be predicted: tests/cpp calls launchers on the host.
  if (gpu.capability == 0) return gemm_naive(p, context);
  launch_row(predict::fastest_row(p, gpu), p, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
