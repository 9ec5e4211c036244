// The numbers of c10::ScalarType, as the C shim returns them. They are part of torch's serialized format, so
// they do not change.
#pragma once

#include <cstdint>

namespace fastgemm::torch_ops {

enum : int32_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kHalf = 5,
  kFloat = 6,
  kDouble = 7,
  kComplexHalf = 8,
  kComplexFloat = 9,
  kComplexDouble = 10,
  kBool = 11,
  kBFloat16 = 15,
  kFloat8E5M2 = 23,
  kFloat8E4M3 = 24,
  kFloat8E8M0 = 44
};

}  // namespace fastgemm::torch_ops
