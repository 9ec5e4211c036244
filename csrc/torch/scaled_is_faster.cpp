#include <algorithm>
#include <iterator>

#include "core/cpu_features.h"
#include "core/gpu.h"
#include "torch/context.h"
#include "torch/scaled_mm.h"

namespace fastgemm::torch_ops {
namespace {

// Products for which fastgemm is faster than torch on Hopper, by the limits of docs/fp8.md. No measured
// product within the limits took longer than torch's: neither those of that page, nor those with eight more
// shapes of b from 768 x 3072 to 12288 x 4096 (H200, torch 2.11, commit 33ed4dc1).
struct Faster {
  Blocks blocks_a, blocks_b;
  int64_t most_rows, least_n, least_k;
};
constexpr Blocks kOne{0, 0}, kRow{1, 0}, kColumn{0, 1}, kOf128{1, 128}, kOf128x128{128, 128};
constexpr Faster kFasterOnHopper[] = {{kRow, kColumn, 64, 1024, 768},
                                      {kRow, kColumn, 128, 4096, 4096},
                                      {kOf128, kOf128x128, 64, 1024, 2048},
                                      {kOne, kOne, 64, 8192, 4096},
                                      {kOne, kOne, 64, 4096, 8192}};
static_assert(std::ranges::all_of(kFasterOnHopper,
                                  [](const Faster& f) { return f.most_rows <= kMostScaledRows; }));

}  // namespace

int capability_of(const View& on) {
  if (on.device_type == aoti_torch_device_type_cpu() || !built_with_cuda()) return 0;
  int capability = 0;
  with_context(on, [&](OpContext&, Device, int) { capability = current_gpu().capability; });
  return capability;
}

bool scaled_is_faster(int64_t m, int64_t n, int64_t k, const Blocks& blocks_a, const Blocks& blocks_b,
                      int capability) {
  // Without AMX torch widens both operands to float32 and multiplies these. That takes 6 times as long for
  // 1024 rows, and 160 times as long for one row (Zen 5, K and N of 2048 and 4096). With AMX nothing was
  // measured.
  if (capability == 0) return !detected_cpu_features().amx_int8;
  return capability == 90 && std::ranges::any_of(kFasterOnHopper, [&](const Faster& f) {
           return f.blocks_a == blocks_a && f.blocks_b == blocks_b && m <= f.most_rows && n >= f.least_n &&
                  k >= f.least_k;
         });
}

}  // namespace fastgemm::torch_ops
