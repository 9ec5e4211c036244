// The rows of CPU GEMM. This file also handles empty problems and column-major results, and chooses the
// instruction set, so that the kernels need not.
#include "core/passes.h"
#include "cpu/gemm/by_isa.h"
#include "cpu/gemm/epilogue.h"
#include "cpu/gemm/predict/predict.h"
#include "cpu/gemm/predict/weights.h"

namespace fastgemm {
namespace {

using Gemm = void (*)(const GemmProblem&, Context&);

// k == 0: the product is zero, and out = beta * c.
void scale(const GemmProblem& p) {
  scalar::with_types(p, [&]<class T, class Out>() {
    using Acc = scalar::Accumulator<Out>;
    const Acc beta = scalar::scalar_of<Acc>(p.beta);
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      const scalar::OutputBlock<Out> o = scalar::output_of<Out>(p, batch);
      for (int64_t i = 0; i < p.m; ++i)
        for (int64_t j = 0; j < p.n; ++j)
          o.out[i * o.ld + j] =
              p.beta == 0 ? Out{} : scalar::round_to<Out>(beta * scalar::widen(*o.at(i, j).c));
    }
  });
}

template <Gemm kernel>
void run(const GemmProblem& p, Context& ctx) {
  if (p.batch <= 0 || p.m <= 0 || p.n <= 0) return;
  const bool contiguous_rows = p.out.col_stride == 1 || p.n == 1;
  const GemmProblem q = contiguous_rows ? p : p.transposed();
  if (q.k <= 0) return scale(q);
  kernel(q, ctx);
}

// The rows of streamed_weights, with pair products where they are faster. Groups of 4-bit codes that are
// parts of a line (weight_lines.h) are scaled in float32.
void streamed_weights(const GemmProblem& p, Context& ctx) {
#if defined(__x86_64__)
  if (cpu_predict::in_pairs(p, cpu_features().avx512_bf16)) return gemm_streamed_bf16(p, ctx);
#endif
  FASTGEMM_BY_ISA(gemm_streamed_weights)(p, ctx);
}

using Predict = double (*)(const GemmProblem&, const Cpu&, int threads);

bool always(const GemmProblem&) { return true; }

constexpr DTypeSet kTimesWeights = dtypes(DType::f32, DType::f16, DType::bf16);

const char* unfit_codes(const GemmProblem& p) {
  if (scales_parts(p) && !cpu_features().avx512_bf16) return "scaled sums of parts of k need AVX512-BF16";
  if (scales_parts(p) && !cpu::suits_parts(p)) return "parts of k that are scaled have 32, 64 or 128 numbers";
  if (!p.packed.is_given()) return nullptr;
  if (p.packed.units) return "it reads packed weights in plain order";
  return contains(kTimesWeights, p.type) ? nullptr : "packed weights multiply float32, float16 and bfloat16";
}

// Every row that multiplies these types takes packed weights (weight_pieces.h).
Kernel row(int level, std::string_view name, DTypeSet types, std::string_view needs, std::string_view summary,
           Gemm gemm, Predict predict = nullptr, const char* (*unavailable)() = nullptr) {
  Kernel k{Op::gemm, Device::cpu, level, name, types, needs, summary};
  k.gemm = gemm;
  k.predict_on_cpu = predict;
  k.unavailable = unavailable;
  k.fuses = always, k.scales = level > 1;
  if (types & kTimesWeights) k.codes = kNoCode | kAllCodes, k.rejects = unfit_codes;
  return k;
}
// For kernels with the five loops of the engine (run_engine.h). If GemmProblem::invariant is set, they sum in
// an order that does not depend on m.
Kernel in_order(Kernel k) {
  k.invariant = always;
  return k;
}
// For packed weights, the row streamed_weights keeps the order instead. It takes a sixth of this row's time
// for one row of x, and twice this row's time for 128 rows.
Kernel in_order_of_matrices(Kernel k) {
  k.invariant = [](const GemmProblem& p) { return !p.packed.is_given(); };
  return k;
}
Kernel with_scales_of_parts(Kernel k) {
  k.scales_parts = true;
  return k;
}
Kernel of_weights_alone(Kernel k) {
  k.codes = kAllCodes;
  k.rejects = [](const GemmProblem& p) {
    return p.packed.is_given() ? unfit_codes(p) : "it takes packed weights only";
  };
  return k;
}
Kernel with_complex(Kernel k) {
  k.complex = true;
  return k;
}

// Kernels for units of one architecture. Their rows are in every table, and tell what is missing.
#if defined(__x86_64__)
#define FASTGEMM_X86(kernel) run<kernel>
#else
#define FASTGEMM_X86(kernel) nullptr
#endif
#if defined(__aarch64__)
#define FASTGEMM_AARCH64(kernel) run<kernel>
#else
#define FASTGEMM_AARCH64(kernel) nullptr
#endif

// Why the kernels of a unit cannot run: the processor lacks it, or FASTGEMM_CPU_ISA excludes it.
const char* lacking(bool CpuFeatures::*unit, const char* absent, const char* left_out) {
  if (cpu_features().*unit) return nullptr;
  return detected_cpu_features().*unit ? left_out : absent;
}

const char* without_amx_bf16() {
  return lacking(&CpuFeatures::amx_bf16, "this processor has no AMX tile unit for bfloat16",
                 "FASTGEMM_CPU_ISA leaves out this processor's AMX tile unit");
}
const char* without_amx_int8() {
  return lacking(&CpuFeatures::amx_int8, "this processor has no AMX tile unit for int8",
                 "FASTGEMM_CPU_ISA leaves out this processor's AMX tile unit");
}
const char* without_dot_bf16() {
  return lacking(&CpuFeatures::avx512_bf16, "this processor has no AVX512-BF16",
                 "FASTGEMM_CPU_ISA leaves out this processor's AVX512-BF16");
}
const char* without_dot_int8() {
  return lacking(&CpuFeatures::avx512_vnni, "this processor has no AVX512-VNNI",
                 "FASTGEMM_CPU_ISA leaves out this processor's AVX512-VNNI");
}
const char* without_mmla_bf16() {
  return lacking(&CpuFeatures::neon_bf16, "this processor has no bfmmla (FEAT_BF16)",
                 "FASTGEMM_CPU_ISA leaves out this processor's bfmmla");
}
const char* without_mmla_int8() {
  return lacking(&CpuFeatures::neon_i8mm, "this processor has no smmla (FEAT_I8MM)",
                 "FASTGEMM_CPU_ISA leaves out this processor's smmla");
}

}  // namespace

void cpu::run_epilogue_pass(const EpiloguePass& given, Context& ctx) {
  if (given.batch * given.m * given.n == 0) return;
  const bool by_rows = given.out.col_stride == 1 || given.n == 1;
  const EpiloguePass f = by_rows ? given : given.transposed();
  FASTGEMM_BY_ISA(epilogue_pass)(f, ctx);
}

const Passes& cpu_passes() {
  static constexpr Passes passes{cpu::double_rows,    cpu::mirror,        cpu::run_epilogue_pass,
                                 cpu::run_dequantize, cpu::run_widen_fp8, cpu::run_quantize_fp8,
                                 cpu::route_tokens,   cpu::combine_rows,  cpu::combine_gradients};
  return passes;
}

std::span<const Kernel> cpu_gemm_kernels() {
  using cpu_predict::seconds_of, cpu_predict::Row;
  constexpr DTypeSet bf16 = dtypes(DType::bf16), i8 = dtypes(DType::i8);
  static const Kernel rows[] = {
      row(1, "naive", kGemmTypes, "any CPU", "three loops, one dot product an element", run<gemm_naive>),
      row(2, "blocked", kGemmTypes, "any CPU", "blocks of A, B and C that fit the caches", run<gemm_blocked>),
      row(3, "packed", kGemmTypes, "any CPU", "blocks copied into panels that are read in order",
          run<gemm_packed>),
      row(4, "simd", kGemmTypes, "any CPU", "vector instructions over the columns of a panel",
          run<FASTGEMM_BY_ISA(gemm_simd)>, seconds_of<Row::simd>),
      row(5, "microkernel", kGemmTypes, "any CPU", "a tile of C in registers, all cores",
          run<FASTGEMM_BY_ISA(gemm_microkernel)>, seconds_of<Row::microkernel>),
      in_order(row(6, "amx_bf16", bf16, "AMX-BF16", "tile registers, 16 x 16 x 32 products an instruction",
                   FASTGEMM_X86(gemm_amx_bf16), seconds_of<Row::amx_bf16>, without_amx_bf16)),
      row(6, "amx_int8", i8, "AMX-INT8", "tile registers, 16 x 16 x 64 products an instruction",
          FASTGEMM_X86(gemm_amx_int8), seconds_of<Row::amx_int8>, without_amx_int8),
      with_scales_of_parts(in_order_of_matrices(
          row(6, "dot_bf16", bf16, "AVX512-BF16", "vdpbf16ps: 32 products an instruction",
              FASTGEMM_X86(gemm_dot_bf16), seconds_of<Row::dot_bf16>, without_dot_bf16))),
      row(6, "dot_int8", i8, "AVX512-VNNI", "vpdpbusd: 64 products an instruction",
          FASTGEMM_X86(gemm_dot_int8), seconds_of<Row::dot_int8>, without_dot_int8),
      in_order(row(6, "mmla_bf16", bf16, "Arm FEAT_BF16", "bfmmla: 2 x 2 x 4 products an instruction",
                   FASTGEMM_AARCH64(gemm_mmla_bf16), seconds_of<Row::mmla_bf16>, without_mmla_bf16)),
      row(6, "mmla_int8", i8, "Arm FEAT_I8MM", "smmla: 2 x 2 x 8 products an instruction",
          FASTGEMM_AARCH64(gemm_mmla_int8), seconds_of<Row::mmla_int8>, without_mmla_int8),
      with_scales_of_parts(
          of_weights_alone(in_order(row(6, "streamed_weights", kTimesWeights, "any CPU",
                                        "packed weights, read once and converted in registers",
                                        run<streamed_weights>, cpu_predict::streamed_seconds)))),
      in_order(with_complex(row(6, "pipelined", kGemmTypes, "any CPU",
                                "level 5 that prefetches C and the next panels",
                                run<FASTGEMM_BY_ISA(gemm_pipelined)>, seconds_of<Row::pipelined>))),
  };
  return rows;
}

}  // namespace fastgemm
