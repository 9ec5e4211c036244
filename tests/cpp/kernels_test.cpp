// Every CPU row of the kernel table that this processor can run, on matrices and scratch memory of which one
// side lies at a page that faults (support.h), so that a step over it ends the program. Under
// AddressSanitizer and UndefinedBehaviorSanitizer (cmake -DFASTGEMM_TORCH=OFF -DFASTGEMM_SANITIZE=ON) the
// code for the oldest processor is held to more. FASTGEMM_CPU_ISA picks the instruction set. Exits 1 when a
// result was wrong, and 77, which ctest counts as skipped, where the processor would run what another
// instruction set runs.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

#include "check.h"
#include "core/cpu_features.h"

namespace {

// Whether what FASTGEMM_CPU_ISA names is a run of its own on this processor.
bool runs_something_else(std::string_view asked, const fastgemm::CpuFeatures& here) {
  if (asked == "avx512") return here.avx512;
  if (asked == "avx2") return here.avx2;
  if (asked != "native") return true;
  return here.avx512_vnni || here.avx512_bf16 || here.amx_bf16 || here.amx_int8 || here.neon_bf16 ||
         here.neon_i8mm;
}

}  // namespace

int main() {
  using namespace fastgemm;
  const char* asked = std::getenv("FASTGEMM_CPU_ISA");
  if (asked && !runs_something_else(asked, cpu_features())) {
    std::printf("skipped: of '%s' this processor has no more than '%s'\n", asked,
                cpu_features().list().c_str());
    return 77;
  }
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
