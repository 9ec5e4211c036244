// The AMX tile instructions, as functions whose tile numbers are template parameters, which the compilers'
// own intrinsics cannot take because they paste the number into the assembly text.
//
// A tile register is up to 16 rows of 64 bytes. With FASTGEMM_AMX_EMULATE the same functions run in plain
// C++ on any processor and follow the instruction set reference to the bit (rounding, flushing, order of
// the sums, what a mismatch of tile shapes does), so that a test can prove the kernels without the unit.
#pragma once

#include <cstdint>

#ifdef FASTGEMM_AMX_EMULATE
#include "cpu/gemm/amx_emulation.h"
#endif

#include "cpu/gemm/element.h"

namespace fastgemm::FASTGEMM_ISA {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  // of a row: 16 accumulators, or 16 words of an operand

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Configures all eight tiles of this thread at their full size, and frees them at the end of the scope:
// a thread that leaves them in use pays for 8 KB more at every context switch.
class TileScope {
 public:
  TileScope() {
    TileConfig config;
    for (int t = 0; t < 8; ++t) {
      config.row_bytes[t] = kTileBytes;
      config.rows[t] = kTileRows;
    }
#ifdef FASTGEMM_AMX_EMULATE
    amx_emulation::configure(&config);
#else
    asm volatile("ldtilecfg %0" : : "m"(config));
#endif
  }
  ~TileScope() {
#ifdef FASTGEMM_AMX_EMULATE
    amx_emulation::release();
#else
    asm volatile("tilerelease");
#endif
  }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

template <int Tile>
inline void tile_zero() {
#ifdef FASTGEMM_AMX_EMULATE
  amx_emulation::zero(Tile);
#else
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
#endif
}

// Row r of the tile lies at base + r * stride, in bytes.
template <int Tile>
inline void tile_load(const void* base, int64_t stride) {
#ifdef FASTGEMM_AMX_EMULATE
  amx_emulation::load(Tile, base, stride);
#else
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(Tile) : "memory");
#endif
}

template <int Tile>
inline void tile_store(void* base, int64_t stride) {
#ifdef FASTGEMM_AMX_EMULATE
  amx_emulation::store(Tile, base, stride);
#else
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(base), "r"(stride), "i"(Tile) : "memory");
#endif
}

// C += A @ B. A: 16 rows of 16 words; B: 16 words of k by 16 columns; a word is 2 bf16 or 4 int8.
template <int C, int A, int B, class T>
inline void tile_multiply() {
#ifdef FASTGEMM_AMX_EMULATE
  if constexpr (sizeof(T) == 2)
    amx_emulation::multiply_bf16(C, A, B);
  else
    amx_emulation::multiply_int8(C, A, B);
#else
  if constexpr (sizeof(T) == 2)
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  else
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
#endif
}

}  // namespace fastgemm::FASTGEMM_ISA
