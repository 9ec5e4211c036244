#include "torch/override/flags.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <string_view>

namespace fastgemm::override {
namespace {

// In deterministic mode torch refuses cuBLAS unless CUBLAS_WORKSPACE_CONFIG makes its workspaces
// reproducible.
bool torch_refuses_cublas() {
  if (!at::globalContext().deterministicAlgorithms()) return false;
  const char* config = std::getenv("CUBLAS_WORKSPACE_CONFIG");
  return !config || (std::string_view(config) != ":4096:8" && std::string_view(config) != ":16:8");
}

}  // namespace

Precision torch_float32_precision() {
  const bool tf32 = at::globalContext().float32Precision(at::Float32Backend::CUDA, at::Float32Op::MATMUL) ==
                    at::Float32Precision::TF32;
  return tf32 ? Precision::tf32 : Precision::ieee;
}

bool torch_computes(Device device, DType type, Precision precision) {
  const at::Context& context = at::globalContext();
  if (device == Device::cpu) {
    if (type == DType::f64) return true;
    const auto set = context.float32Precision(at::Float32Backend::MKLDNN, at::Float32Op::MATMUL);
    return precision == Precision::ieee &&
           (set == at::Float32Precision::NONE || set == at::Float32Precision::IEEE);
  }
  if (torch_refuses_cublas()) return false;
  if (type == DType::f64) return true;
  if (type == DType::f32) return precision == torch_float32_precision();
  constexpr auto kRounds = at::CuBLASReductionOption::AllowReducedPrecisionWithSplitK;
  return (type == DType::f16 ? context.allowFP16ReductionCuBLAS() : context.allowBF16ReductionCuBLAS()) !=
         kRounds;
}

}  // namespace fastgemm::override
