// How the tensor memory accelerator and wgmma permute the 16-byte units of a tile in shared memory, so that
// the units of a row, and also those of a column, lie in different banks.
#pragma once

#include "cuda/device/platform.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The value is the number of bytes in a row of the tile; without a swizzle, rows may have any length. Unit u
// of a row lies at the place of unit u ^ f(row): f is row % 8 for rows of 128 bytes, row / 2 % 4 for 64 and
// row / 4 % 2 for 32. The pattern repeats after 8 rows, so tiles must begin at multiples of 1024, 512 or 256
// bytes.
enum class Swizzle : int { none = 0, bytes32 = 32, bytes64 = 64, bytes128 = 128 };

// Where the byte at `offset` of an unswizzled tile lies in the swizzled one: bits 7 and up are XORed into
// bits 4 and up. Both offsets count from an address that is aligned to the pattern.
template <Swizzle swizzle>
__host__ __device__ __forceinline__ constexpr uint32_t swizzled(uint32_t offset) {
  constexpr uint32_t kUnits = swizzle == Swizzle::none ? 0 : uint32_t(swizzle) - 16;
  return offset ^ (offset >> 3 & kUnits);
}

}  // namespace fastgemm::FASTGEMM_TARGET
