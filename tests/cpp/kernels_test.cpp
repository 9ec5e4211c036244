// Checks every CPU row of the kernel table that this processor can run. Matrices and scratch memory begin or
// end at a guard page (support.h), so that an access beyond ends the program. AddressSanitizer and
// UndefinedBehaviorSanitizer (cmake -DFASTGEMM_TORCH=OFF -DFASTGEMM_SANITIZE=ON) check more, in the code for
// the oldest processor. FASTGEMM_CPU_ISA selects the instruction set. Exits with 1 if a result was wrong.
// Exits with 77, which ctest counts as skipped, if the processor would run the same code as for another
// instruction set.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

#include "check.h"
#include "core/cpu_features.h"

namespace {

// Whether FASTGEMM_CPU_ISA selects code on this processor that no other run covers.
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
    if (!(kernel.codes & kNoCode) || !(kernel.groups & kNoGroups)) continue;  // others are checked elsewhere
    for (const DType type : test::types_of(kernel)) test::check_row(kernel, type, random);
    ++rows;
  }
  std::printf("\n%d rows on %s, seed %u: %d wrong\n", rows, cpu_features().list().c_str(), seed,
              test::failures());
  return test::failures() || rows == 0 ? 1 : 0;
}
