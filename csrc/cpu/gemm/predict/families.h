// The processors that were measured. Any other processor is predicted with the constants of the most similar
// one. Features and cache sizes decide which one that is, because hypervisors change model numbers.
#pragma once

#include "cpu/gemm/predict/counts.h"

namespace fastgemm::cpu_predict {

enum class Family : uint8_t {
  zen3,            // AMD with AVX2
  zen4,            // AMD with AVX-512, two cycles for 64 bytes
  granite_rapids,  // Intel with two AVX-512 units and 2 MB of L2: Sapphire to Granite Rapids
  without_tiles,   // the same with its tile unit switched off, for bfloat16 and integers of 8 and 16 bits
};
inline constexpr int kFamilies = 4;

// The family whose constants are used for a kernel, or for the framework's product of a type.
Family family_of(Row, DType, const Cpu&);
// Whether products of a type were measured on a processor of this family, libraries included. For others,
// only the ratios between its library and others are known.
bool is_measured(DType, const Cpu&);

}  // namespace fastgemm::cpu_predict
