#include "cuda/architectures.h"

#include <algorithm>
#include <cstdlib>

namespace fastgemm::cuda {
namespace {

struct Code {
  int number = 0;   // 80
  char suffix = 0;  // 'a', 'f' or 0 for none
  bool machine = true, ptx = true;

  explicit Code(const std::string& entry) : number(int(std::strtol(entry.c_str(), nullptr, 10))) {
    const size_t dash = std::min(entry.find('-'), entry.size());
    const size_t letter = std::min(entry.find_first_not_of("0123456789"), dash);
    if (letter < dash) suffix = entry[letter];
    machine = entry.substr(dash) != "-virtual";
    ptx = entry.substr(dash) != "-real";
  }
};

// CUDA C++ Programming Guide, "Binary Compatibility": Tegra GPUs run only code for their own compute
// capability, and no other GPU runs that code.
bool is_tegra(int capability) { return capability == 87 || capability == 88; }

bool runs(const Code& code, int capability) {
  const bool same_family = capability / 10 == code.number / 10 && capability >= code.number;
  if (code.suffix == 'a') return capability == code.number;
  if (code.suffix == 'f') return same_family;
  if (code.ptx && capability >= code.number) return true;
  const bool alone = is_tegra(capability) || is_tegra(code.number);
  return code.machine && (alone ? capability == code.number : same_family);
}

template <class Test>
bool any_code(std::string_view architectures, const Test& test) {
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find(' '), architectures.size());
    if (end > 0 && test(Code(std::string(architectures.substr(0, end))))) return true;
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
  }
  return false;
}

std::string what_it_is(std::string_view gpu, int capability) {
  return std::string(gpu) + " has compute capability " + std::to_string(capability / 10) + "." +
         std::to_string(capability % 10);
}

std::string what_is_built(std::string_view architectures) {
  return "this build holds code for " + std::string(architectures) + " only";
}

}  // namespace

bool has_image(std::string_view architectures, int capability) {
  return any_code(architectures, [=](const Code& code) { return runs(code, capability); });
}

bool has_wgmma_image(std::string_view architectures, int capability) {
  return any_code(architectures, [=](const Code& code) {
    return code.number == 90 && code.suffix == 'a' && runs(code, capability);
  });
}

std::string lacks_sm80(std::string_view architectures, std::string_view gpu, int capability) {
  if (capability < 80) return "it needs compute capability 8.0, and " + what_it_is(gpu, capability);
  if (has_image(architectures, capability)) return "";
  return what_is_built(architectures) + ", and " + what_it_is(gpu, capability) +
         " (build with FASTGEMM_CUDA_ARCHS=" + std::to_string(capability) +
         (capability == 90 ? "a-real)" : "-real)");
}

std::string lacks_sm90a(std::string_view architectures, std::string_view gpu, int capability) {
  if (std::string why = lacks_sm80(architectures, gpu, capability); !why.empty()) return why;
  if (capability != 90) return "it needs compute capability 9.0, and " + what_it_is(gpu, capability);
  if (has_wgmma_image(architectures, capability)) return "";
  return what_is_built(architectures) + "; it needs 90a-real in FASTGEMM_CUDA_ARCHS";
}

}  // namespace fastgemm::cuda
