// Checks the AMX kernels on any processor, like the rows of the kernel table (check.h). They are compiled
// with a model of the tile unit (cpu/gemm/amx_emulation.h). Exits with 1 if a result was wrong.
#include <cstdio>
#include <random>

#include "check.h"
#include "core/cpu_features.h"
#include "cpu/gemm/levels.h"

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
  std::printf("\nseed %u: %d wrong\n", seed, test::failures());
  return test::failures() ? 1 : 0;
}
