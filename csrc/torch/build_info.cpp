#include "torch/build_info.h"

#include "core/cpu_features.h"
#include "core/table.h"
#include "core/tuning.h"
#include "library/rows.h"
#if FASTGEMM_HAS_CUDA
#include "cuda/device/image.h"
#endif

namespace fastgemm {
std::string cuda_device() {
#if FASTGEMM_HAS_CUDA
  const cuda::DeviceImage d = cuda::device_image();
  if (!d.problem.empty()) return "none: " + d.problem;
  return d.device + " (compute capability " + std::to_string(d.capability) + ", runs the code of sm_" +
         std::to_string(d.image_arch) + ")";
#else
  return "none: built without CUDA";
#endif
}

std::vector<std::pair<std::string, std::string>> build_info() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  const std::string compiler = "gcc " __VERSION__;
#else
  const std::string compiler = "unknown";
#endif
  return {{"version", FASTGEMM_VERSION},
          {"compiler", compiler},
          {"torch_abi", "stable, 2.11 and later"},
          {"torch_at_build", FASTGEMM_TORCH_VERSION},
          {"cuda_archs", FASTGEMM_CUDA_ARCHS},
          {"cpu", cpu_features().brand},
          {"cpu_model", cpu_model()},
          {"cpu_features", cpu_features().list()},
          {"cublas", cublas_version()},
          {"table_hash", table_hash()}};
}

std::string table_hash() {
  uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  const auto mix = [&h](std::string_view text) {
    for (const char c : text) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  };
  for (const Kernel& k : kernels()) {
    mix(k.name), mix(k.summary), mix(k.needs);
    mix(std::to_string(int(k.op)) + "," + std::to_string(int(k.device)) + "," + std::to_string(k.level) +
        "," + std::to_string(k.dtypes) + ";");
  }
  mix(FASTGEMM_VERSION);
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (int i = 60; i >= 0; i -= 4) text += digits[(h >> i) & 15];
  return text;
}

}  // namespace fastgemm
