// Rings of stages in the shared memory that a GPU gives a block: 227 KB on compute capability 9.0 and 10.0,
// 163 KB on 8.0, 99 KB on 8.6, 8.9 and 12.x. A ring has three stages, or two if three do not fit.
#pragma once

#include "cuda/device/launch.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kLeastBlockBytes = 99 << 10;  // on every GPU since sm_80

// Calls body.operator()<STAGES>() with the number of stages that a ring has on this GPU.
template <int STAGE_BYTES, class Body>
void with_stages(Body&& body) {
  static_assert(2 * STAGE_BYTES <= kLeastBlockBytes);
  if constexpr (3 * STAGE_BYTES > kLeastBlockBytes) {
    if (block_bytes() < 3 * STAGE_BYTES) return body.template operator()<2>();
  }
  body.template operator()<3>();
}

// Whether a kernel with such a ring may run on the GPU for which it is compiled. If not, its body is empty.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
template <int STAGES, int STAGE_BYTES>
inline constexpr bool kMayHaveStages = STAGES == (3 * STAGE_BYTES > kLeastBlockBytes ? 2 : 3);
#else
template <int STAGES, int STAGE_BYTES>
inline constexpr bool kMayHaveStages = STAGES == 3 || FASTGEMM_PORTABLE;
#endif

}  // namespace fastgemm::FASTGEMM_TARGET
