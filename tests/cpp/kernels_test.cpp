// Every CPU row of the kernel table that this processor can run, on matrices whose memory ends exactly where
// they end: under AddressSanitizer (cmake -DFASTGEMM_TORCH=OFF -DFASTGEMM_SANITIZE=ON) any step beyond an
// operand, between the rows of a result or beyond the scratch memory fails. FASTGEMM_CPU_ISA picks the
// instruction set. Exits 1 when a result was wrong.
#include <cstdio>

#include "check.h"
#include "core/cpu_features.h"

int main() {
  using namespace fastgemm;
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  int rows = 0;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device != Device::cpu || kernel.why_unavailable() || kernel.name == "torch") continue;
    for (const DType type : test::types_of(kernel)) test::check_row(kernel, type, random);
    ++rows;
  }
  std::printf("\n%d rows on %s, seed %u: %d wrong\n", rows, cpu_features().list().c_str(), seed,
              test::failures());
  return test::failures() || rows == 0 ? 1 : 0;
}
