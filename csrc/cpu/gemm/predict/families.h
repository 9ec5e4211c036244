// The processors that were measured. Another one is predicted with the constants of the one that it is most
// like, by its features and by the sizes of its caches: hypervisors change the numbers of models.
#pragma once

#include "cpu/gemm/predict/counts.h"

namespace fastgemm::cpu_predict {

enum class Family : uint8_t {
  zen3,            // AMD with AVX2
  zen4,            // AMD with AVX-512, two cycles for 64 bytes
  granite_rapids,  // Intel with AMX, two AVX-512 units and 2 MB of L2: Sapphire to Granite Rapids
};
inline constexpr int kFamilies = 3;

// Whose constants hold for a kernel, or for the framework's product of a type.
Family family_of(Row, DType, const Cpu&);
// Whether a processor is of a family, so that all of it was measured. Else nothing is known of its libraries
// but how they compare with others.
bool is_measured(const Cpu&);

}  // namespace fastgemm::cpu_predict
