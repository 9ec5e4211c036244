// The framework's product on a CPU. It uses MKL in float64 and float32, and oneDNN in bfloat16 and int8. It
// uses loops in one thread in int32, in float16 without AVX512-FP16, and in bfloat16 and int8 without
// AVX-512. How these compute a product is not known. So the counts are those of any blocked product, and some
// more for shapes that the libraries compute in another way.
#include <algorithm>
#include <bit>

#include "cpu/gemm/predict/counts.h"

namespace fastgemm::cpu_predict {
namespace {

constexpr int64_t round_up(int64_t x, int64_t y) { return (x + y - 1) / y * y; }

// Multiply-adds per cycle and core, with the best unit that a library uses for the type; 0 if it has none.
// With AVX-512 but without pair or quad products, oneDNN computes bfloat16 at half the rate of float32, and
// int8 at up to three times that rate: 0.5 and 2.9 times were measured with ONEDNN_MAX_CPU_ISA=AVX512_CORE.
// Without AVX-512 torch uses loops of its own, with 2 cycles for each multiply-add in int8 on Zen 3.
double library_rate(DType type, const Units& cpu) {
  const double float32 = cpu.vector_issue * cpu.vector_bytes() / 4;
  constexpr double kAvx2 = 2 * 32 / 4;
  // On AMD's processors MKL uses its AVX2 kernels. For a Zen 4, which takes two cycles for 64 bytes, they are
  // as fast. On two cores of a Zen 5, MKL reached 223 of 560 GFLOPS.
  const double mkl = cpu.mkl_avx2 ? std::min(float32, kAvx2) : float32;
  switch (type) {
    case DType::f64:
      return mkl / 2;
    case DType::f32:
      return mkl;
    case DType::f16:  // on 16 cores with AVX512-FP16, MKL took 1.5 times as long as in float32
      return cpu.fp16 ? mkl / 1.5 : 0;
    case DType::bf16:
      return cpu.amx_bf16             ? 1024
             : cpu.dot_bf16           ? cpu.vector_bytes() / 2
             : cpu.isa == Isa::avx512 ? float32 / 2
             : cpu.mmla_bf16          ? 4 * float32  // by bfmmla, which was not measured
                                      : 0;
    case DType::i8:
      return cpu.amx_int8 ? 2048 : cpu.vnni ? 4 * float32 : cpu.isa == Isa::avx512 ? 3 * float32 : 0;
    default:
      return 0;
  }
}

bool is_half(DType type) { return type == DType::f16 || type == DType::bf16; }

// Whether torch passes a product of 16 bits to oneDNN, with its whole batch in one call. It multiplies
// smaller ones by loops.
bool is_large(const GemmProblem& p) {
  return (is_half(p.type) ? p.batch : 1) * p.m * p.n * p.k > 16 * 16 * 16;
}

// Whether MKL multiplies number by number: 2 to 7 rows if both operands are contiguous across k. In float32
// it then takes 2 to 15 times as long as `pipelined`; for 8 rows it takes 0.25 to 1.2 times as long. Its
// kernels for AMD's processors do not do this.
bool is_slow_in_mkl(const GemmProblem& p, const Units& cpu) {
  const bool mkl = p.type == DType::f32 || p.type == DType::f64;
  return mkl && !cpu.mkl_avx2 && p.m > 1 && p.m < 8 && p.a.col_stride != 1 && p.b.col_stride != 1;
}

// Whether torch multiplies by loops of its own, although the type has a library: a vector of float16 by a
// matrix if both are contiguous along k, and batches of products of fewer than 400 multiply-adds.
bool is_vector_in_loops(const GemmProblem& p) {
  return p.type == DType::f16 && p.batch == 1 && (p.m == 1 || p.n == 1) && p.a.col_stride == 1 &&
         p.b.row_stride == 1;
}
bool is_tiny_in_loops(const GemmProblem& p) {
  return p.batch > 1 && p.m * p.n * p.k < 400 && !(is_half(p.type) && is_large(p));
}

Counts count_loops(const GemmProblem& p, const Cpu& cpu, int threads) {
  constexpr double kTask = 1 << 15;  // multiply-adds of a thread
  const double each = double(p.batch) * double(p.m) * double(p.n), work = each * double(p.k);
  const double on = std::clamp(std::floor(work / kTask), 1.0, double(threads)), cycle = 1 / cpu.clock;
  Counts c{};
  c[kCall] = cycle;
  c[kFork] = on > 1 ? std::bit_width(unsigned(on - 1)) * cycle : 0;
  if (p.batch == 1) {
    c[kAloneRows] = work / on * cycle;
    c[kAloneDot] = each / on * cycle;
    return c;
  }
  c[kMember] = double(p.batch) / on * cycle;
  c[kAlone] = work / on * cycle;
  c[kAloneAcross] = p.b.row_stride == 1 ? 0 : c[kAlone];
  c[kAloneEach] = each / on * cycle;
  return c;
}

}  // namespace

bool has_library_unit(DType type, const Cpu& cpu) { return library_rate(type, cpu.library) > 0; }

Counts count_library(const GemmProblem& p, const Cpu& cpu, int threads) {
  const int on = std::max(threads, 1);
  if (has_library_unit(p.type, cpu) && (is_vector_in_loops(p) || is_tiny_in_loops(p)))
    return count_loops(p, cpu, on);
  const double batch = double(p.batch), m = double(p.m), n = double(p.n), k = double(p.k);
  const double size = element_size(p.type), out_size = element_size(p.out_type);
  const double cycle = 1 / cpu.clock, rate = library_rate(p.type, cpu.library), work = batch * m * n * k;
  const double multiply = rate > 0 ? work / rate / on * cycle : 0;
  const double bytes = batch * (k * (m + n) * size + m * n * out_size);
  const auto beyond = [&](double cache) { return std::max(0.0, 1 - cache / std::max(bytes, 1.0)); };
  Counts c{};
  c[kCall] = cycle;
  c[kFork] = on > 1 ? std::bit_width(unsigned(on - 1)) * cycle : 0;
  c[kLargeCall] = is_large(p) ? cycle : 0;
  c[kMember] = p.batch > 1 ? batch * cycle : 0;
  c[kMultiply] = multiply;
  if (is_half(p.type) && !is_large(p)) c[kAlone] = work * cycle;
  if (is_slow_in_mkl(p, cpu.library)) c[kAloneAcross] = work / on * cycle;
  if (rate == 0) {
    const bool a_along = p.a.col_stride == 1, b_along = p.b.col_stride == 1;
    c[kAlone] = work * cycle;
    if (!a_along && !b_along) c[kAloneAcross] = c[kAlone];
    if (a_along && b_along) c[kAloneRows] = c[kAlone];
    if (b_along) c[kAloneAxpy] = batch * m * k * cycle;
    if (a_along && !b_along) c[kAloneDot] = batch * m * n * cycle;
  }
  c[kPadded] =
      rate > 0 ? batch * double(round_up(p.m, 16)) * double(round_up(p.n, 32)) * k / rate / on * cycle : 0;
  c[kReadA] = batch * k * m * size / 64 * cycle;
  c[kReadB] = batch * k * n * size / 64 * cycle;
  c[kWritten] = batch * m * n * out_size / 64 * cycle;
  const double products = rate > 0 ? multiply : c[kAlone];
  c[kFewRows] = p.m > 1 && p.m <= 16 ? products : 0;
  c[kFewColumns] = p.n > 1 && p.n <= 16 ? products : 0;
  c[kFewAcross] = p.n <= 16 && !(p.a.col_stride == 1 && p.b.row_stride == 1) ? products : 0;
  c[kSmallResult] = p.m * p.n <= 64 * 64 ? products : 0;
  c[kCache] = bytes * beyond(double(cpu.l2) * on) / (16.0 * on) * cycle;
  c[kMemory] = bytes * beyond(double(cpu.l3)) / std::min(cpu.core_bandwidth * on, cpu.bandwidth);
  return c;
}

}  // namespace fastgemm::cpu_predict
