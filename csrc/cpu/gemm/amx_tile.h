// The AMX tile instructions as functions whose tile numbers are template parameters. (The compilers' own
// intrinsics cannot take one: they paste the number into the assembly text.)
//
// A tile register holds up to 16 rows of 64 bytes. With FASTGEMM_AMX_EMULATE the same functions run in plain
// C++ on any processor, so that the kernels can be tested without a tile unit.
#pragma once

#include "cpu/gemm/simd.h"

#if defined(FASTGEMM_AMX_EMULATE)
#include "cpu/gemm/amx_emulation.h"
#endif

namespace fastgemm::FASTGEMM_ISA {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  // in a row: 16 accumulators of C, or 16 units of A or B

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Configures all eight tiles of the calling thread at their full size.
FASTGEMM_INLINE void configure_tiles() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) {
    config.row_bytes[t] = kTileBytes;
    config.rows[t] = kTileRows;
  }
#if defined(FASTGEMM_AMX_EMULATE)
  amx_emulation::configure(config.rows, config.row_bytes);
#else
  asm volatile("ldtilecfg %0" : : "m"(config));
#endif
}

// While a thread has configured tiles, every context switch saves 8 KiB more of state.
FASTGEMM_INLINE void release_tiles() {
#if defined(FASTGEMM_AMX_EMULATE)
  amx_emulation::release();
#else
  asm volatile("tilerelease");
#endif
}

template <int Tile>
FASTGEMM_INLINE void zero_tile() {
#if defined(FASTGEMM_AMX_EMULATE)
  amx_emulation::zero(Tile);
#else
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
#endif
}

// Row r of the tile lies `stride` bytes after row r - 1.
template <int Tile>
FASTGEMM_INLINE void load_tile(const void* base, int64_t stride) {
#if defined(FASTGEMM_AMX_EMULATE)
  amx_emulation::load(Tile, base, stride);
#else
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(Tile) : "memory");
#endif
}

// The same, for data that is read only once. It does not displace other data in L1.
template <int Tile>
FASTGEMM_INLINE void load_tile_once(const void* base, int64_t stride) {
#if defined(FASTGEMM_AMX_EMULATE)
  amx_emulation::load(Tile, base, stride);
#else
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(Tile) : "memory");
#endif
}

template <int Tile>
FASTGEMM_INLINE void store_tile_register(void* base, int64_t stride) {
#if defined(FASTGEMM_AMX_EMULATE)
  amx_emulation::store(Tile, base, stride);
#else
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(base), "r"(stride), "i"(Tile) : "memory");
#endif
}

// Tile C += tile A (16 rows, 16 units of k) * tile B (16 units of k, 16 columns), in bf16 or in int8.
template <int C, int A, int B, class Element>
FASTGEMM_INLINE void multiply_tiles() {
  constexpr bool int8 = std::is_same_v<Element, int8_t>;
  static_assert(int8 || std::is_same_v<Element, BFloat16>);
#if defined(FASTGEMM_AMX_EMULATE)
  int8 ? amx_emulation::multiply_int8(C, A, B) : amx_emulation::multiply_bf16(C, A, B);
#else
  if constexpr (int8) {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  } else {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
  }
#endif
}

}  // namespace fastgemm::FASTGEMM_ISA
