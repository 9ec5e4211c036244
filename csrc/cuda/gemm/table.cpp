// The entries of the kernel table for GEMM on CUDA, made from rows.def.
#include <algorithm>
#include <iterator>

#include "core/passes.h"
#include "cuda/gemm/launchers.h"
#include "cuda/gemm/predict/predict.h"
#include "cuda/gemm/rules.h"
#include "cuda/rows.h"

namespace fastgemm {
namespace {

using namespace predict;  // the counters

constexpr DTypeSet kInt64 = dtypes(DType::i64), kInt16 = dtypes(DType::i16, DType::i16i64);
constexpr DTypeSet kFloat64 = dtypes(DType::f64), kFloat32 = dtypes(DType::f32), kInt32 = dtypes(DType::i32);
constexpr DTypeSet kHalf = dtypes(DType::f16, DType::bf16), kHalfAndByte = kHalf | dtypes(DType::i8);
constexpr DTypeSet kPackedTypes = kFloat32 | kHalf;  // of x, in products with packed weights
constexpr DTypeSet kOtherBytes = dtypes(DType::u8, DType::u8i8, DType::i8u8);
// The types that tensor cores multiply in place, float32 rounded to tf32.
constexpr DTypeSet kTensorCoreTypes = kFloat32 | kHalfAndByte;

constexpr GroupedBySet kBatchOrGroups = kNoGroups | kAnyGroups;

// Whether warp_specialized and small apply the epilogue of a product: float32 and 16-bit types, in any
// layout.
bool fuses_floats(const GemmProblem& p) { return p.alpha == 1.0 && (p.type == DType::f32 || fuses_half(p)); }

// These functions say for which products a kernel can add in an order that does not depend on m
// (Kernel::invariant). All rows of a type add in the same order: each instruction takes the next 32 bytes of
// k, whatever the width of the tile. (PTX does not promise that instructions of 64 x 32 sums round as those
// of 64 x 256 sums do. On an H200 they do: tests/kernels/test_invariant.py.) bf16x6 does not take short sums
// (rules.h), so vectorized does.
bool always(const GemmProblem&) { return true; }
bool is_float32(const GemmProblem& p) { return p.type == DType::f32 && p.precision != Precision::tf32; }
bool is_short_float32(const GemmProblem& p) { return is_float32(p) && beyond_bf16x6(p); }
bool is_half_or_tf32(const GemmProblem& p) {
  return fuses_half(p) || (p.type == DType::f32 && p.precision == Precision::tf32);
}

// What a GPU needs to run a row.
struct Needs {
  std::string_view text;
  const char* (*unavailable)();
};
constexpr Needs kAmpere{"sm_80", cuda::unavailable_sm80};
constexpr Needs kHopper{"sm_90a", cuda::unavailable_sm90a};

// The fields of a row in rows.def.
struct Fields {
  int level;
  DTypeSet types = kGemmTypes;
  Needs needs = kAmpere;
  Role role = Role::rung;
  Precision precision = Precision::ieee;                 // the precision of its float32 products
  const char* (*rejects)(const GemmProblem&) = nullptr;  // null: takes every problem
  bool (*fuses)(const GemmProblem&) = nullptr;           // null: a pass applies epilogues
  bool (*mirrors)(const GemmProblem&) = nullptr;         // null: stores one triangle, or all
  int64_t (*most_of_triangle)(const GemmProblem&, const Gpu&) = nullptr;  // null: computes both triangles
  bool (*invariant)(const GemmProblem&) = nullptr;              // null: the order of its sums may depend on m
  predict::Counter count = nullptr;                             // null: not predicted, and so picked last
  CodeSet codes = kNoCode;                                      // of packed weights; kNoCode: takes matrices
  double (*seconds)(const GemmProblem&, const Gpu&) = nullptr;  // in place of count: the prediction itself
  GroupedBySet groups = kNoGroups;                              // of uneven size; kNoGroups: takes a batch
  bool gates = false;
  bool gathers = false;
  std::string_view summary;
};

using Predict = double (*)(const GemmProblem&, const Gpu&);
template <Row row, predict::Counter count>
double predicted(const GemmProblem& p, const Gpu& gpu) {
  return predict::seconds(row, count, p, gpu);
}
// The prediction of a row: a function of its own, its counts times their costs, or none.
template <Row row, predict::Counter count, Predict own>
constexpr Predict prediction = own;
template <Row row, predict::Counter count>
constexpr Predict prediction<row, count, nullptr> = predicted<row, count>;
template <Row row>
constexpr Predict prediction<row, nullptr, nullptr> = nullptr;

constexpr Kernel kernel(std::string_view name, void (*launcher)(const GemmProblem&, Context&),
                        Predict predicts, const Fields& r) {
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
          .predict = predicts,
          .rejects = r.rejects,
          .fuses = r.fuses,
          .mirrors = r.mirrors,
          .most_of_triangle = r.most_of_triangle,
          .invariant = r.invariant,
          .codes = r.codes,
          .groups = r.groups,
          .gates = r.gates,
          .gathers = r.gathers};
}

constexpr Kernel kRows[] = {
#define FASTGEMM_ROW(name, ...)                 \
  kernel(#name, FASTGEMM_LAUNCHER(gemm_##name), \
         prediction<Row::name, Fields{__VA_ARGS__}.count, Fields{__VA_ARGS__}.seconds>, {__VA_ARGS__}),
#include "cuda/gemm/rows.def"
};

}  // namespace

std::span<const Kernel> cuda_gemm_kernels() { return kRows; }

const Passes& cuda_passes() {
  static constexpr Passes passes{FASTGEMM_LAUNCHER(double_rows),       FASTGEMM_LAUNCHER(mirror),
                                 FASTGEMM_LAUNCHER(run_epilogue_pass), FASTGEMM_LAUNCHER(run_dequantize),
                                 FASTGEMM_LAUNCHER(run_widen_fp8),     FASTGEMM_LAUNCHER(run_quantize_fp8),
                                 FASTGEMM_LAUNCHER(route_tokens),      FASTGEMM_LAUNCHER(combine_rows),
                                 FASTGEMM_LAUNCHER(combine_gradients)};
  return passes;
}

const predict::PredictedRow* predict::predicted_row(std::string_view name) {
  static constexpr PredictedRow rows[] = {
#define FASTGEMM_ROW(name, ...) {#name, Row::name, Fields{__VA_ARGS__}.count},
#include "cuda/gemm/rows.def"
  };
  const auto found = std::ranges::find(rows, name, &PredictedRow::name);
  return found != std::end(rows) && found->count ? found : nullptr;
}

}  // namespace fastgemm
