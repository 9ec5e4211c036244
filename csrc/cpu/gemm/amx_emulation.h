// A model of the AMX tile unit in plain C++, which follows the instruction set reference. A thread has eight
// tiles. An instruction fails if the tiles are not configured, or if their shapes do not fit each other.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace fastgemm::amx_emulation {

struct Tile {
  uint8_t bytes[16][64];
};
struct State {
  bool configured = false;
  int rows[8] = {}, row_bytes[8] = {};
  Tile tiles[8] = {};
};
inline thread_local State state;

inline void require(bool fine, const char* instruction) {
  if (fine) return;
  std::fprintf(stderr, "AMX emulation: invalid use of %s\n", instruction);
  std::abort();
}

inline void configure(const uint8_t* rows, const uint16_t* row_bytes) {
  state = State{};
  state.configured = true;
  for (int t = 0; t < 8; ++t) {
    require(rows[t] <= 16 && row_bytes[t] <= 64 && row_bytes[t] % 4 == 0, "ldtilecfg");
    state.rows[t] = rows[t];
    state.row_bytes[t] = row_bytes[t];
  }
}
inline void release() { state = State{}; }

inline void zero(int t) {
  require(state.configured, "tilezero");
  state.tiles[t] = Tile{};
}
// Rows and bytes beyond the configured ones become zero.
inline void load(int t, const void* base, int64_t stride) {
  require(state.configured, "tileloadd");
  state.tiles[t] = Tile{};
  for (int r = 0; r < state.rows[t]; ++r)
    std::memcpy(state.tiles[t].bytes[r], static_cast<const char*>(base) + r * stride, state.row_bytes[t]);
}
inline void store(int t, void* base, int64_t stride) {
  require(state.configured, "tilestored");
  for (int r = 0; r < state.rows[t]; ++r)
    std::memcpy(static_cast<char*>(base) + r * stride, state.tiles[t].bytes[r], state.row_bytes[t]);
}

template <class T>
T element(int t, int row, int index) {
  T x;
  std::memcpy(&x, state.tiles[t].bytes[row] + index * sizeof(T), sizeof(T));
  return x;
}
template <class T>
void set_element(int t, int row, int index, T x) {
  std::memcpy(state.tiles[t].bytes[row] + index * sizeof(T), &x, sizeof(T));
}

inline void require_shapes(int c, int a, int b, const char* instruction) {
  require(state.configured && a != b && a != c && b != c && state.rows[c] == state.rows[a] &&
              state.row_bytes[c] == state.row_bytes[b] && state.row_bytes[a] / 4 == state.rows[b],
          instruction);
}

// Subnormal inputs and results are zero.
inline float flush(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }
inline float bf16(int t, int row, int index) {
  const uint32_t bits = uint32_t{element<uint16_t>(t, row, index)} << 16;
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return flush(x);
}

// tdpbf16ps: sums the even k and the odd k separately, by fused multiply-adds. Then it adds the two sums, and
// adds the result to C.
inline void multiply_bf16(int c, int a, int b) {
  require_shapes(c, a, b, "tdpbf16ps");
  for (int m = 0; m < state.rows[c]; ++m)
    for (int n = 0; n < state.row_bytes[c] / 4; ++n) {
      float even = 0, odd = 0;
      for (int k = 0; k < state.rows[b]; ++k) {
        even = flush(std::fma(bf16(a, m, 2 * k), bf16(b, k, 2 * n), even));
        odd = flush(std::fma(bf16(a, m, 2 * k + 1), bf16(b, k, 2 * n + 1), odd));
      }
      set_element(c, m, n, flush(flush(element<float>(c, m, n)) + flush(even + odd)));
    }
}

// tdpbssd: signed bytes, added modulo 2^32.
inline void multiply_int8(int c, int a, int b) {
  require_shapes(c, a, b, "tdpbssd");
  for (int m = 0; m < state.rows[c]; ++m)
    for (int n = 0; n < state.row_bytes[c] / 4; ++n) {
      uint32_t sum = element<uint32_t>(c, m, n);
      for (int k = 0; k < state.rows[b]; ++k)
        for (int i = 0; i < 4; ++i)
          sum +=
              static_cast<uint32_t>(int{element<int8_t>(a, m, 4 * k + i)} * element<int8_t>(b, k, 4 * n + i));
      set_element(c, m, n, sum);
    }
}

}  // namespace fastgemm::amx_emulation
