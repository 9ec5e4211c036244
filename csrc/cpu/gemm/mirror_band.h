// A part of the mirror pass (core/mirror.h), compiled once per instruction set.
#pragma once

#include "core/mirror.h"

namespace fastgemm {

inline constexpr int64_t kMirrorBand = 64;  // rows

// Fills the elements above the diagonal in rows [row, row + kMirrorBand) of one matrix.
#define FASTGEMM_DECLARE_MIRROR_BAND(isa)                         \
  namespace isa {                                                 \
  void mirror_band(const Mirror& m, int64_t matrix, int64_t row); \
  }
FASTGEMM_DECLARE_MIRROR_BAND(baseline)
FASTGEMM_DECLARE_MIRROR_BAND(avx2)
FASTGEMM_DECLARE_MIRROR_BAND(avx512)
#undef FASTGEMM_DECLARE_MIRROR_BAND

}  // namespace fastgemm
