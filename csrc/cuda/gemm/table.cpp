// The entries of the kernel table for GEMM on CUDA, made of rows.def.
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/rules.h"
#include "cuda/rows.h"

namespace fastgemm {
namespace {

constexpr DTypeSet kFloat64 = dtypes(DType::f64), kFloat32 = dtypes(DType::f32), kInt32 = dtypes(DType::i32);
constexpr DTypeSet kHalfAndByte = dtypes(DType::f16, DType::bf16, DType::i8);
// The types that tensor cores multiply in place, float32 rounded to tf32.
constexpr DTypeSet kTensorCoreTypes = kFloat32 | kHalfAndByte;

// What a GPU must have.
struct Needs {
  std::string_view text;
  const char* (*unavailable)();
};
constexpr Needs kAmpere{"sm_80", cuda::unavailable_sm80};
constexpr Needs kHopper{"sm_90a", cuda::unavailable_sm90a};
// Compute capability 8.6, 8.9 and 12.x give a block 99 KB of shared memory.
constexpr Needs kLargeBlock{
    "sm_80, 144 KB a block", [] {
      return cuda::unavailable_sm80(
          kLargeBlockBytes, "its blocks take up to 144 KB of shared memory, more than this GPU gives one");
    }};

struct Row {
  int level;
  DTypeSet types = kGemmTypes;
  Needs needs = kAmpere;
  Role role = Role::rung;
  Precision precision = Precision::ieee;                 // what it makes of float32 products
  const char* (*rejects)(const GemmProblem&) = nullptr;  // null: takes every problem
  bool (*suits)(const GemmProblem&) = nullptr;           // null: its level may pick it for every problem
  std::string_view summary;
};

constexpr Kernel kernel(std::string_view name, void (*launcher)(const GemmProblem&, Context&), const Row& r) {
  return {.op = Op::gemm,
          .device = Device::cuda,
          .level = r.level,
          .name = name,
          .dtypes = r.types,
          .needs = r.needs.text,
          .summary = r.summary,
          .role = r.role,
          .precision = r.precision,
          .gemm = launcher,
          .unavailable = r.needs.unavailable,
          .rejects = r.rejects,
          .suits = r.suits};
}

constexpr Kernel kRows[] = {
#define FASTGEMM_ROW(name, ...) kernel(#name, FASTGEMM_LAUNCHER(gemm_##name), {__VA_ARGS__}),
#include "cuda/gemm/rows.def"
};

}  // namespace

std::span<const Kernel> cuda_gemm_kernels() { return kRows; }

}  // namespace fastgemm
