// How the tensor memory accelerator and wgmma permute the 16-byte units of a shared-memory tile, so that
// both its rows and its columns of units lie in different banks.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A tile whose rows have as many bytes as the value says (a tile that is not swizzled: any number). In it the
// unit at (row, unit) lies where (row, unit ^ f(row)) would without: f is row % 8 for 128 bytes, row / 2 % 4
// for 64 and row / 4 % 2 for 32. The pattern comes again after 8 rows, so tiles begin at multiples of that:
// 1024, 512 or 256 bytes.
enum class Swizzle : int { none = 0, bytes32 = 32, bytes64 = 64, bytes128 = 128 };

// Where the byte at `offset` of a plain tile lies in the swizzled one: bits 7 and up are added to bits 4 and
// up. Both count from a place in shared memory that is aligned to the pattern.
template <Swizzle swizzle>
__host__ __device__ __forceinline__ constexpr uint32_t swizzled(uint32_t offset) {
  constexpr uint32_t kUnits = swizzle == Swizzle::none ? 0 : uint32_t(swizzle) - 16;
  return offset ^ (offset >> 3 & kUnits);
}

}  // namespace fastgemm::FASTGEMM_TARGET
