// Tests packed weights of 4 and 8 bits on a CPU: that blocks of them become the numbers that
// packed::weight_at() gives, bit by bit and in every instruction set. Codes, scales and zeros end at a guard
// page. FASTGEMM_CPU_ISA selects the instruction set.
#include <cstdio>
#include <random>
#include <string>

#include "core/cpu_features.h"
#include "core/dequantize.h"
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
         std::mt19937& random)
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
    packed = {code, scale, zero, false, group_n, group_k, scales.data(), zeros.data()};
    if (random() % 2) packed.global = &global;
    text = "code " + std::to_string(int(code)) + ", scale " + std::to_string(int(scale)) + ", zero " +
           std::to_string(int(zero)) + ", n " + std::to_string(n) + ", k " + std::to_string(k) + ", groups " +
           std::to_string(group_n) + " x " + std::to_string(group_k);
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
  std::printf("%d packed weights on %s, seed %u: %d wrong\n", weights, cpu_features().list().c_str(), seed,
              failures);
  return failures ? 1 : 0;
}
