// Tests for which GPUs a build has code, and the message for other GPUs.
#include "cuda/architectures.h"

#include <cstdio>
#include <initializer_list>
#include <string>

namespace fastgemm::cuda {
namespace {

int failures = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  ++failures;
  std::printf("wrong: %s\n", what.c_str());
}

// Compute capabilities of GPUs since 7.5.
constexpr int kCapabilities[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121, 130};

// Checks that a build runs on exactly these GPUs; `wgmma`: with wgmma on 9.0.
void runs_on(const std::string& architectures, std::initializer_list<int> capabilities, bool wgmma) {
  for (const int capability : kCapabilities) {
    bool expected = false;
    for (const int c : capabilities) expected |= c == capability;
    expect(has_image(architectures, capability) == expected,
           "\"" + architectures + "\" on " + std::to_string(capability));
    expect(has_wgmma_image(architectures, capability) == (wgmma && capability == 90),
           "wgmma of \"" + architectures + "\" on " + std::to_string(capability));
    const bool lacks = !lacks_sm80(architectures, "A GPU", capability).empty();
    expect(lacks != expected, "reasons of \"" + architectures + "\" on " + std::to_string(capability));
  }
}

void says(const std::string& reason, const std::string& expected) {
  expect(reason == expected, "\"" + reason + "\" instead of \"" + expected + "\"");
}

}  // namespace
}  // namespace fastgemm::cuda

int main() {
  using namespace fastgemm::cuda;
  // The builds of releases.
  runs_on("80 90a-real 100-real 120-real", {80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121, 130}, true);
  // Machine code. Tegra GPUs run only their own, and no other GPU runs theirs.
  runs_on("80-real", {80, 86, 89}, false);
  runs_on("86-real", {86, 89}, false);
  runs_on("87-real", {87}, false);
  runs_on("100-real", {100, 103}, false);
  runs_on("110-real", {110}, false);
  runs_on("120-real", {120, 121}, false);
  runs_on("121-real", {121}, false);
  runs_on("90-real", {90}, false);
  // PTX.
  runs_on("80-virtual", {80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121, 130}, false);
  runs_on("90", {90, 100, 103, 110, 120, 121, 130}, false);
  runs_on("110-virtual", {110, 120, 121, 130}, false);
  // Code with the instructions of one architecture, or of a family.
  runs_on("90a-real", {90}, true);
  runs_on("90a-virtual", {90}, true);
  runs_on("90a", {90}, true);
  runs_on("100a", {100}, false);
  runs_on("100f", {100, 103}, false);
  runs_on("120f-real", {120, 121}, false);
  runs_on("80-real 90a-real 120-real", {80, 86, 89, 90, 120, 121}, true);
  runs_on("", {}, false);

  says(lacks_sm80("80-real", "H", 90),
       "this build holds code for 80-real only, and H has compute capability 9.0 (build with "
       "FASTGEMM_CUDA_ARCHS=90a-real)");
  says(lacks_sm90a("80-real", "H", 90), lacks_sm80("80-real", "H", 90));
  says(lacks_sm80("90a-real", "B", 121),
       "this build holds code for 90a-real only, and B has compute capability 12.1 (build with "
       "FASTGEMM_CUDA_ARCHS=121-real)");
  says(lacks_sm80("80", "T4", 75), "it needs compute capability 8.0, and T4 has compute capability 7.5");
  says(lacks_sm90a("80 90a-real", "A100", 80),
       "it needs compute capability 9.0, and A100 has compute capability 8.0");
  says(lacks_sm90a("90-real", "H", 90),
       "this build holds code for 90-real only; it needs 90a-real in FASTGEMM_CUDA_ARCHS");
  says(lacks_sm90a("90a-real", "H", 90), "");
  if (failures == 0) std::printf("architectures: all as expected\n");
  return failures != 0;
}
