// Checks the AMX kernels on any processor, like the rows of the kernel table (check.h). They are compiled
// with a model of the tile unit (cpu/gemm/amx_emulation.h). Exits with 1 if a result was wrong.
#include <bit>
#include <cstdio>
#include <random>
#include <vector>

#include "check.h"
#include "core/cpu_features.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/packed_block.h"
#include "support.h"

namespace fastgemm {
namespace {

uint16_t bf16_bits(float small_integer) { return uint16_t(std::bit_cast<uint32_t>(small_integer) >> 16); }

// A packed weight is read through the same engine. All numbers are small integers, so the sums are exact.
bool multiplies_packed_weights(std::mt19937& random) {
  constexpr int64_t m = 35, n = 70, k = 300, group = 32, groups = (k + group - 1) / group;
  const auto digit = [&random] { return int(random() % 9) - 4; };
  std::vector<int8_t> codes(n * k);
  std::vector<uint16_t> x(m * k);
  std::vector<float> scales(n * groups), out(m * n), numbers(m * k);
  for (int8_t& code : codes) code = int8_t(digit());
  for (float& scale : scales) scale = float(1 << random() % 3);
  for (size_t i = 0; i < x.size(); ++i) numbers[i] = float(digit()), x[i] = bf16_bits(numbers[i]);
  GemmProblem p;
  p.type = DType::bf16, p.m = m, p.n = n, p.k = k;
  p.a = {x.data(), k, 1, 0}, p.b = {codes.data(), 1, k, 0}, p.out = {out.data(), n, 1, 0};
  p.packed = {Code::int8, ScaleType::f32, Zero::none, false, 1, group, scales.data()};
  test::ThreadContext context(3);
  gemm_amx_bf16(p, context);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t kk = 0; kk < k; ++kk)
        sum += numbers[i * k + kk] * float(codes[j * k + kk]) * scales[j * groups + kk / group];
      if (sum == out[i * n + j]) continue;
      std::printf("packed: (%d, %d) is %g, not %g\n", int(i), int(j), double(out[i * n + j]), double(sum));
      return false;
    }
  return true;
}

}  // namespace

// In place of the kernels that convert weights, which are not linked here.
void dequantize(const PackedBlock& b) {
  for (int64_t i = 0; i < b.rows; ++i)
    for (int64_t j = 0; j < b.depth; ++j)
      static_cast<uint16_t*>(b.to)[i * b.ld + j] =
          bf16_bits(packed::weight_at(*b.weight, b.codes, b.k_size, b.first_n + i, b.first_k + j));
}

}  // namespace fastgemm

int main() {
  using namespace fastgemm;
#if defined(__AVX512F__)
  if (!cpu_features().avx512) {
    std::printf("skipped: packs with AVX-512, which this processor lacks\n");
    return 77;  // ctest counts that as skipped
  }
#endif
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  // Level 6, so that the check includes sums long enough to be split over threads.
  Kernel row{Op::gemm, Device::cpu, 6, "amx_bf16", dtypes(DType::bf16), "", ""};
  row.rejects = [](const GemmProblem& p) {
    return p.k == 0 || p.out.col_stride != 1 ? "the row of the table turns it into another" : nullptr;
  };
  for (int round = 0; round < 3; ++round) {
    row.name = "amx_bf16", row.gemm = gemm_amx_bf16;
    test::check_row(row, DType::bf16, random);
    row.name = "amx_int8", row.gemm = gemm_amx_int8;
    test::check_row(row, DType::i8, random);
  }
  const bool packed = multiplies_packed_weights(random);
  std::printf("\nseed %u: %d wrong\n", seed, test::failures());
  return test::failures() || !packed ? 1 : 0;
}
