// A build for one instruction set (here: baseline) refuses to run with another. The argument says what to
// expect.
#include <cstdio>
#include <stdexcept>
#include <string_view>

#include "core/cpu_features.h"

using namespace fastgemm;

int main(int, char** arguments) {
  const bool expected = std::string_view(arguments[1]) == "refused";
  if (expected && detected_cpu_features().isa() == Isa::baseline) return 77;
  bool refused = false;
  try {
    cpu_features();
  } catch (const std::runtime_error& error) {
    std::puts(error.what());
    refused = std::string_view(error.what()).find("FASTGEMM_NATIVE") != std::string_view::npos;
  }
  return refused == expected ? 0 : 1;
}
