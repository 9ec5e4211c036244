// Checks every CUDA kernel of csrc/cuda, compiled as C++ and run on the CPU by csrc/simt, against plain
// loops. The kernel table says which element types a kernel takes. A part of the launcher's name and a type
// select what to run:
//
//   cmake -S . -B build/simt -G Ninja -DFASTGEMM_TORCH=OFF && ninja -C build/simt cuda_on_host_test &&
//     build/simt/tests/cpp/cuda_on_host_test gemm_tiled float32
//
// Exits with 1 if a result was wrong.
#include <chrono>
#include <cstdio>
#include <string_view>

#include "check.h"
#include "core/names.h"
#include "simt/rows.h"

int main(int count, char** arguments) {
  using namespace fastgemm;
  using Clock = std::chrono::steady_clock;
  const std::string_view wanted = count > 1 ? arguments[1] : "", wanted_type = count > 2 ? arguments[2] : "";
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  int runs = 0;
  for (const Kernel& kernel : simt::rows()) {
    const std::string name = std::string(to_string(kernel.op)) + "_" + std::string(kernel.name);
    if (name.find(wanted) == std::string::npos) continue;
    if (!(kernel.codes & kNoCode) || !(kernel.groups & kNoGroups))
      continue;  // others: tests/quantized, tests/kernels
    if (kernel.level == 0)
      test::report(kernel, test::types_of(kernel)[0], "has a launcher and no row in the kernel table");
    for (const DType type : test::types_of(kernel)) {
      if (!wanted_type.empty() && to_string(type) != wanted_type) continue;
      std::printf("%-32s %-9s ", name.c_str(), std::string(to_string(type)).c_str());
      std::fflush(stdout);  // before a kernel that may crash
      const auto start = Clock::now();
      const int before = test::failures();
      test::check_row(kernel, type, random);
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      std::printf("%s%6.2f s  %s\n", test::failures() == before ? "" : "\n", seconds,
                  test::failures() == before ? "right" : "WRONG");
      ++runs;
    }
  }
  std::printf("%d runs, seed %u: %d wrong\n", runs, seed, test::failures());
  return test::failures() || runs == 0 ? 1 : 0;
}
