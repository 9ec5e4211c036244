// How much workspace the planes of a product may take. A product that needs more is computed in panels of C,
// which use the same workspace one after another.
#pragma once

#include <cstdint>

#include "core/reused_workspace.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The planes that exist at the same time take at most 2 GiB, whatever the size of the product. A larger
// product is computed in panels of C (planes/panels.cuh), a few segments of k at a time, and a batch in
// parts. The row int8x10 rejects a k for which the planes of a single tile would take more (rules.h). A
// product of more than one segment also has the sums of a panel of C in the workspace.
inline constexpr int64_t kMostPlaneBytes = int64_t{2} << 30;

#if defined(__CUDACC__)
inline int64_t most_plane_bytes() { return kMostPlaneBytes; }
#else
// The simulator's module exports the limit. Tests lower it, so that small products have several panels, parts
// of a batch and groups of segments.
extern "C" {
[[gnu::visibility("default"), gnu::used]] inline int64_t fastgemm_most_plane_bytes = kMostPlaneBytes;
}
inline int64_t most_plane_bytes() { return fastgemm_most_plane_bytes; }
#endif

}  // namespace fastgemm::FASTGEMM_TARGET
