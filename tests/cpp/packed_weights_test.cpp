// Tests packed weights of 4 and 8 bits on a CPU: that blocks of them become the numbers that
// packed::weight_at() gives, bit by bit and in every instruction set, and every row of the kernel table
// against sums in double. Codes, scales, zeros and x end at a guard page. FASTGEMM_CPU_ISA selects the
// instruction set.
#include <array>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "core/cpu_features.h"
#include "core/dequantize.h"
#include "core/table.h"
#include "cpu/gemm/element.h"
#include "cpu/gemm/packed_block.h"
#include "support.h"

namespace fastgemm {
namespace {

using test::Guarded;

int failures = 0;
void expect(bool right, const std::string& what) {
  if (!right && ++failures <= 20) std::printf("wrong: %s\n", what.c_str());
}

// A weight of random bytes, so that every code and every scale occurs; but no code is NaN.
struct Weight {
  int64_t n, k;
  PackedWeight packed;
  Guarded codes, scales, zeros;
  float global;
  std::string text;

  Weight(Code code, ScaleType scale, Zero zero, int64_t n, int64_t k, int64_t group_n, int64_t group_k,
         std::mt19937& random, bool moderate = false)
      : n(n),
        k(k),
        codes(size_t(n * (bits_of(code) == 4 ? (k + 1) / 2 : k)), true),
        scales(size_t(groups(n, k, group_n, group_k) * size_of(scale)), true),
        zeros(size_t(groups(n, k, group_n, group_k) * (zero == Zero::added ? size_of(scale) : 1)), true),
        global(0.75f) {
    const auto fill = [&](const Guarded& memory, size_t bytes, bool no_nan) {
      for (size_t i = 0; i < bytes; ++i) {
        unsigned byte = random() % 256;
        if (no_nan && (byte & 127) == 127) byte = 1;
        memory.data()[i] = std::byte(byte);
      }
    };
    const int64_t count = groups(n, k, group_n, group_k);
    fill(codes, size_t(n * (bits_of(code) == 4 ? (k + 1) / 2 : k)), code == Code::e4m3);
    fill(scales, size_t(count * size_of(scale)), false);
    fill(zeros, size_t(count * (zero == Zero::added ? size_of(scale) : 1)), false);
    if (moderate) {
      fill_moderate(scale, scales, count);
      if (zero == Zero::added) fill_moderate(scale, zeros, count);
    }
    packed = {code, scale, zero, false, group_n, group_k, scales.data(), zeros.data()};
    if (random() % 2) packed.global = &global;
    text = "code " + std::to_string(int(code)) + ", scale " + std::to_string(int(scale)) + ", zero " +
           std::to_string(int(zero)) + ", n " + std::to_string(n) + ", k " + std::to_string(k) + ", groups " +
           std::to_string(group_n) + " x " + std::to_string(group_k);
  }
  // Numbers from 1/4 to 4: the byte that decides the exponent is set.
  static void fill_moderate(ScaleType type, const Guarded& memory, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      std::byte& top = memory.data()[(i + 1) * size_of(type) - 1];
      const unsigned low = unsigned(top);
      const unsigned bits = type == ScaleType::f32 || type == ScaleType::bf16 ? 0x3e + low % 3
                            : type == ScaleType::f16                          ? 0x34 + low % 16
                            : type == ScaleType::e8m0                         ? 125 + low % 5
                                                                              : 0x28 + low % 32;
      top = std::byte(bits);
    }
  }
  // The numbers of all weights, row by row.
  std::vector<double> numbers() const {
    std::vector<double> all(size_t(n * k));
    for (int64_t i = 0; i < n * k; ++i)
      all[size_t(i)] = packed::weight_at(packed, codes.data(), k, i / k, i % k);
    return all;
  }
  static int64_t groups(int64_t n, int64_t k, int64_t group_n, int64_t group_k) {
    return packed::blocks(n, group_n) * packed::blocks(k, group_k);
  }
};

// The bits of a weight as an element of this type.
uint32_t bits_of_weight(DType type, float x) {
  if (type == DType::bf16) return scalar::to_bfloat16(x).bits;
  return type == DType::f16 ? scalar::to_half(x).bits : scalar::bit_cast<uint32_t>(x);
}
bool is_nan(DType type, uint32_t bits) {
  if (type == DType::f32) return (bits & 0x7fffffffu) > 0x7f800000u;
  return (bits & 0x7fffu) > (type == DType::bf16 ? 0x7f80u : 0x7c00u);
}

// A block of random position, whose result ends at a guard page.
void check_block(const Weight& w, DType type, std::mt19937& random) {
  const int64_t n = int64_t(random() % size_t(w.n)), rows = 1 + int64_t(random() % size_t(w.n - n));
  const int64_t k = int64_t(random() % size_t(w.k)), depth = 1 + int64_t(random() % size_t(w.k - k));
  const int64_t size = element_size(type), ld = depth + int64_t(random() % 3);
  const Guarded to(size_t(((rows - 1) * ld + depth) * size), true);
  dequantize({&w.packed, w.codes.data(), w.k, n, rows, k, depth, type, to.data(), ld});
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < depth; ++j) {
      uint32_t got = 0;
      std::memcpy(&got, to.data() + (i * ld + j) * size, size_t(size));
      const float weight = packed::weight_at(w.packed, w.codes.data(), w.k, n + i, k + j);
      const uint32_t wanted = bits_of_weight(type, weight);
      if (got == wanted || (is_nan(type, got) && std::isnan(weight))) continue;
      return expect(false, w.text + ": (" + std::to_string(n + i) + ", " + std::to_string(k + j) + ") is " +
                               std::to_string(got) + ", not " + std::to_string(wanted));
    }
  }
}

// The pass over a whole weight, by threads.
void check_pass(const Weight& w, DType type) {
  const int64_t size = element_size(type), ld = w.k + 3;
  const Guarded out(size_t(((w.n - 1) * ld + w.k) * size), true), block(size_t(w.n * w.k * size), true);
  test::ThreadContext context(3);
  cpu::run_dequantize({type, w.n, w.k, w.codes.data(), w.packed, {out.data(), ld, 1, 0}}, context);
  dequantize({&w.packed, w.codes.data(), w.k, 0, w.n, 0, w.k, type, block.data(), w.k});
  for (int64_t i = 0; i < w.n; ++i)
    expect(!std::memcmp(out.data() + i * ld * size, block.data() + i * w.k * size, size_t(w.k * size)),
           w.text + ": the pass differs");
}

// The scales of a weight as those of parts of k (core/part_scales.h), and scales of x, which end at a guard
// page: 1, 2, or 3 for each row and each part.
void scale_parts(GemmProblem& p, const Weight& w, const Guarded& of_x) {
  const int64_t parts = packed::blocks(w.k, w.packed.group_k);
  for (int64_t i = 0; i < p.m * parts; ++i) {
    const float scale = float(1 + i % 3);
    std::memcpy(of_x.data() + i * int64_t{sizeof scale}, &scale, sizeof scale);
  }
  p.scales_a = {ScaleType::f32, of_x.data(), parts, 1, 1, w.packed.group_k};
  p.scales_b = {w.packed.scale, w.packed.scales, 1, parts, w.packed.group_k, w.packed.group_n};
  p.packed.scale = ScaleType::none, p.packed.scales = nullptr;
  p.packed.group_n = 1, p.packed.group_k = w.k;
}

// A row of the table, with m rows of x; scales and zeros are finite.
void check_row(const Kernel& kernel, DType type, const Weight& w, int64_t m, std::mt19937& random,
               bool in_parts = false) {
  const std::vector<double> weights = w.numbers();
  const test::Layout at_end{false, int64_t(random() % 3), 0, true, 1};
  const int64_t parts = packed::blocks(w.k, w.packed.group_k);
  const Guarded scales(in_parts ? size_t(m * parts) * sizeof(float) : 0, true);
  test::Block a(type, 1, m, w.k, at_end), out(type, 1, m, w.n, at_end), bias(type, 1, 1, w.n, at_end);
  a.randomize(random), bias.randomize(random);
  GemmProblem p;
  p.type = p.out_type = type, p.m = m, p.n = w.n, p.k = w.k;
  p.a = a.read_only(), p.out = out.view();
  p.b = {w.codes.data(), 1, w.k, 0};
  p.packed = w.packed;
  if (in_parts) scale_parts(p, w, scales);
  p.epilogue = {Activation::relu, true, bias.read_only().data, 0, 1};
  if (kernel.rejects && kernel.rejects(p)) return;
  test::ThreadContext context(random() % 2 ? 3 : 1);
  kernel.gemm(p, context);
  // Rounding of the weights, of the result and of the sums.
  const double unit = type == DType::bf16 ? 0x1p-8 : type == DType::f16 ? 0x1p-11 : 0x1p-23;
  std::vector<double> row(size_t(w.k));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t k = 0; k < w.k; ++k) {
      row[size_t(k)] = a.number(0, i, k);
      if (in_parts) row[size_t(k)] *= double(1 + (i * parts + k / w.packed.group_k) % 3);
    }
    for (int64_t j = 0; j < w.n; ++j) {
      double sum = bias.number(0, 0, j), size = std::fabs(sum);
      for (int64_t k = 0; k < w.k; ++k) {
        const double x = row[size_t(k)] * weights[size_t(j * w.k + k)];
        sum += x, size += std::fabs(x);
      }
      if (type == DType::f16 && std::fabs(sum) > 6e4) continue;  // about its largest number
      const double error = std::fabs(out.number(0, i, j) - std::max(sum, 0.0));
      if (error <= size * (2 * unit + double(w.k) * 0x1p-24) + 1e-4 * unit) continue;
      return expect(false, std::string(kernel.name) + ", type " + std::to_string(int(type)) + ", m " +
                               std::to_string(m) + ", " + w.text + ": (" + std::to_string(i) + ", " +
                               std::to_string(j) + ") is " + std::to_string(out.number(0, i, j)) + ", not " +
                               std::to_string(std::max(sum, 0.0)));
    }
  }
  expect(out.gaps_untouched(), std::string(kernel.name) + ": wrote between the rows");
}

}  // namespace
}  // namespace fastgemm

int main() {
  using namespace fastgemm;
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  constexpr int64_t sizes[][4] = {{1, 1, 1, 1},     {3, 77, 1, 16},       {5, 256, 1, 32}, {4, 300, 1, 128},
                                  {2, 100, 1, 100}, {130, 260, 128, 128}, {7, 95, 3, 7},   {9, 63, 9, 63},
                                  {2, 2100, 1, 16}, {3, 129, 1, 64}};
  int weights = 0;
  for (const Code code : {Code::int4, Code::nf4, Code::e2m1, Code::int8, Code::e4m3})
    for (const ScaleType scale :
         {ScaleType::f32, ScaleType::bf16, ScaleType::f16, ScaleType::e8m0, ScaleType::e4m3})
      for (const Zero zero : {Zero::none, Zero::subtracted, Zero::added})
        for (const auto& [n, k, group_n, group_k] : sizes) {
          const Weight w(code, scale, zero, n, k, group_n, group_k, random);
          for (const DType type : {DType::f32, DType::bf16, DType::f16})
            for (int i = 0; i < 3; ++i) check_block(w, type, random);
          check_pass(w, DType::bf16);
          ++weights;
        }
  int rows = 0;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device != Device::cpu || kernel.op != Op::gemm || kernel.why_unavailable()) continue;
    for (const Code code : {Code::int4, Code::nf4, Code::e2m1, Code::int8, Code::e4m3}) {
      if (!(kernel.codes & codes(code)) || kernel.name == "dequantized") continue;
      for (const auto& [n, k, group_n, group_k] : sizes) {
        const auto any = [&](auto... x) { return std::array{x...}[random() % sizeof...(x)]; };
        const ScaleType scale =
            any(ScaleType::f32, ScaleType::bf16, ScaleType::f16, ScaleType::e8m0, ScaleType::e4m3);
        const Zero zero = any(Zero::none, Zero::subtracted, Zero::added);
        const Weight w(code, scale, zero, n, k, group_n, group_k, random, true);
        for (const DType type : {DType::f32, DType::bf16, DType::f16})
          for (const int64_t m : {int64_t{1}, int64_t(1 + random() % 20), int64_t{k < 200 ? 130 : 7}})
            if (contains(kernel.dtypes, type)) check_row(kernel, type, w, m, random);
      }
      ++rows;
    }
    for (const auto& [n, k, group_n, group_k] : sizes) {
      if (!kernel.scales_parts) continue;
      Weight w(Code::e4m3, random() % 2 ? ScaleType::f32 : ScaleType::e8m0, Zero::none, n, k, group_n,
               group_k, random, true);
      w.packed.global = nullptr;
      for (const int64_t m : {1, 2, 4, 11, 60}) check_row(kernel, DType::bf16, w, m, random, true);
    }
  }
  std::printf("%d rows and codes, %d packed weights on %s, seed %u: %d wrong\n", rows, weights,
              cpu_features().list().c_str(), seed, failures);
  return failures ? 1 : 0;
}
