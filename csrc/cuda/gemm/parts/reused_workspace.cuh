// How much workspace a product takes whose operands are cut into planes, and how the panels of C that do not
// have it all at once share it.
#pragma once

#include <cstdint>

#include "core/reused_workspace.h"
#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The planes that exist at a time take at most 2 GiB, whatever the size of the product: a larger product
// is computed in panels of C (planes/pieces.cuh), its k some segments at a time, a batch in pieces. The row
// int8x10 rejects a k for which the planes of a single tile would take more (rules.h). A product of more
// than one segment also has the sums of a panel of C in the workspace.
inline constexpr int64_t kMostPlaneBytes = int64_t{2} << 30;

#if defined(__CUDACC__)
inline int64_t most_plane_bytes() { return kMostPlaneBytes; }
#else
// The simulator's module exports the limit: tests lower it, so that small products have panels, pieces and
// groups of segments.
extern "C" {
[[gnu::visibility("default"), gnu::used]] inline int64_t fastgemm_most_plane_bytes = kMostPlaneBytes;
}
inline int64_t most_plane_bytes() { return fastgemm_most_plane_bytes; }
#endif

}  // namespace fastgemm::FASTGEMM_TARGET
