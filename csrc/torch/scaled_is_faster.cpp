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

}  // namespace

int capability_of(const View& on) {
  if (on.device_type == aoti_torch_device_type_cpu()) return 0;
  int capability = 0;
  with_context(on, [&](OpContext&, Device, int) { capability = current_gpu().capability; });
  return capability;
}

bool scaled_is_faster(const ScaledCall& call) {
  const View& a = call.a.view;
  // Without AMX torch widens both operands to float32 and multiplies these. That takes 6 times as long for
  // 1024 rows, and 160 times as long for one row (Zen 5, K and N of 2048 and 4096). With AMX nothing was
  // measured.
  if (a.device_type == aoti_torch_device_type_cpu()) return !detected_cpu_features().amx_int8;
  if (capability_of(a) != 90) return false;
  return std::ranges::any_of(kFasterOnHopper, [&](const Faster& f) {
    return f.blocks_a == call.blocks_a && f.blocks_b == call.blocks_b && a.size(2) <= f.most_rows &&
           call.b.view.size(1) >= f.least_n && a.size(1) >= f.least_k;
  });
}

}  // namespace fastgemm::torch_ops
