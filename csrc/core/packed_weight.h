// Weights of 4 and 8 bits: what a code stands for, and where it lies. CPU code, GPU code and the simulator
// share this header; python/fastgemm/_quantized/layout.py writes the same two orders.
//
// A weight is (n, k), as the weight of a linear layer is; it is b^T of its product. With one scale for each
// block of group_n x group_k codes,
//
//   weight = (code - zero) * scale * global     Zero::subtracted; zero is an integer
//   weight = (code * scale + zero) * global     Zero::added; zero has the type of the scales
//
// Plain order (files, CPUs): rows of codes. Two codes of 4 bits share a byte, the even k in the low half, and
// a row begins with a byte. Scales and zeros are row-major, (ceil(n / group_n), ceil(k / group_k)).
//
// Units (GPUs): blocks of 64 rows x 128 columns, row-major, each one piece of memory that one bulk copy
// moves:
//
//   [ codes, 4096 or 8192 bytes | scales of its groups | zeros of its groups ]      multiples of 16 bytes
//
// The codes lie as fragments of mma.sync and wgmma: a thread that owns rows r and r + 8 of 16 reads 16 bytes
// and has all of its codes of 64 (8-bit codes: 32) columns. Codes, scales and zeros beyond the weight are
// those of the number 0. A scale that serves whole rows (group_k >= k) is not in the units: `scales` then has
// one float32 for each row, `zeros` one value for each row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/packed.h"

namespace fastgemm {

namespace packed {

inline constexpr int kRows = 64, kColumns = 128;  // of a unit

FASTGEMM_ANYWHERE constexpr int64_t blocks(int64_t x, int64_t size) { return (x + size - 1) / size; }
FASTGEMM_ANYWHERE constexpr int round_up(int bytes) { return (bytes + 15) / 16 * 16; }

FASTGEMM_ANYWHERE constexpr int zero_size(const PackedWeight& w) {
  return w.zero == Zero::none ? 0 : w.zero == Zero::subtracted ? 1 : size_of(w.scale);
}
// The groups along k, and the rows with scales of their own, of a unit whose scales are inside.
FASTGEMM_ANYWHERE constexpr int unit_groups(const PackedWeight& w) {
  return w.group_k >= kColumns ? 1 : kColumns / int(w.group_k);
}
FASTGEMM_ANYWHERE constexpr int unit_scale_rows(const PackedWeight& w) { return w.group_n == 1 ? kRows : 1; }
FASTGEMM_ANYWHERE constexpr int unit_code_bytes(const PackedWeight& w) {
  return kRows * kColumns * bits_of(w.code) / 8;
}
FASTGEMM_ANYWHERE constexpr int unit_scale_bytes(const PackedWeight& w, int64_t k) {
  return w.by_rows(k) ? 0 : round_up(unit_groups(w) * unit_scale_rows(w) * size_of(w.scale));
}
FASTGEMM_ANYWHERE constexpr int unit_zero_bytes(const PackedWeight& w, int64_t k) {
  return w.by_rows(k) ? 0 : round_up(unit_groups(w) * unit_scale_rows(w) * zero_size(w));
}
FASTGEMM_ANYWHERE constexpr int unit_bytes(const PackedWeight& w, int64_t k) {
  return unit_code_bytes(w) + unit_scale_bytes(w, k) + unit_zero_bytes(w, k);
}

// Where row r and column c of a unit lie: the byte, and the first bit in it. A step is 16 columns. In a step,
// the thread with lane 4 * (r % 8) + (c % 8) / 2 of warp r / 16 owns 8 codes: in each of two rows, which are
// 8 apart, two columns of each half of the step (c / 8). `p` is the register of the fragment; the even column
// is in the low half of each register.
struct Place {
  int byte, bit;
};
FASTGEMM_ANYWHERE constexpr Place place_in_unit(Code code, int r, int c) {
  const int thread = r / 16 * 32 + r % 8 * 4 + c % 8 / 2, step = c / 16;
  const int p = r / 8 % 2 + c % 16 / 8 * 2, odd = c % 2;
  if (bits_of(code) == 4) {
    const int bit = 4 * p + 16 * odd;
    return {(step / 4 * 128 + thread) * 16 + step % 4 * 4 + bit / 8, bit % 8};
  }
  return {(step / 2 * 128 + thread) * 16 + step % 2 * 8 + p / 2 * 4 + p % 2 + 2 * odd, 0};
}
// The index among the scales (and zeros) of a unit. They are ordered by groups of columns, and by rows within
// a group; the two rows of one thread, which are 8 apart, lie side by side.
FASTGEMM_ANYWHERE constexpr int scale_in_unit(const PackedWeight& w, int r, int c) {
  const int group = w.group_k >= kColumns ? 0 : c / int(w.group_k);
  return w.group_n == 1 ? group * kRows + r / 16 * 16 + r % 8 * 2 + r / 8 % 2 : group;
}

template <class To>
FASTGEMM_ANYWHERE To reinterpret_bits(uint32_t bits) {
  To to;
  __builtin_memcpy(&to, &bits, sizeof(to));
  return to;
}

// Number i of NormalFloat. Bits select among registers: GPUs would keep an indexed array in memory.
FASTGEMM_ANYWHERE float normal_float(unsigned i) {
  float x[16] = {-1.0f,
                 -0.6961928009986877f,
                 -0.5250730514526367f,
                 -0.39491748809814453f,
                 -0.28444138169288635f,
                 -0.18477343022823334f,
                 -0.09105003625154495f,
                 0.0f,
                 0.07958029955625534f,
                 0.16093020141124725f,
                 0.24611230194568634f,
                 0.33791524171829224f,
                 0.44070982933044434f,
                 0.5626170039176941f,
                 0.7229568362236023f,
                 1.0f};
  for (int j = 0; j < 8; ++j) x[j] = i & 8 ? x[j + 8] : x[j];
  for (int j = 0; j < 4; ++j) x[j] = i & 4 ? x[j + 4] : x[j];
  for (int j = 0; j < 2; ++j) x[j] = i & 2 ? x[j + 2] : x[j];
  return i & 1 ? x[1] : x[0];
}
// The number that a code stands for. It is exact in every type of a product, except for nf4.
FASTGEMM_ANYWHERE float decode(Code code, unsigned bits) {
  switch (code) {
    case Code::int4:
      return float(int(bits) - 8);
    case Code::nf4:
      return normal_float(bits);
    case Code::e2m1: {
      const int e = bits >> 1 & 3, m = bits & 1;
      const float x = e ? float((2 + m) << e) * 0.25f : float(m) * 0.5f;
      return bits & 8 ? -x : x;
    }
    case Code::int8:
      return float(int8_t(bits));
    default: {
      const int e = bits >> 3 & 15, m = bits & 7;
      if (e == 15 && m == 7) return NAN;
      const float x =
          e ? reinterpret_bits<float>(uint32_t(e + 120) << 23 | uint32_t(m) << 20) : float(m) * 0x1p-9f;
      return bits & 128 ? -x : x;
    }
  }
}

// Element i of an array of scales.
FASTGEMM_ANYWHERE float scale_at(ScaleType type, const void* scales, int64_t i) {
  switch (type) {
    case ScaleType::f32:
      return static_cast<const float*>(scales)[i];
    case ScaleType::bf16:
      return reinterpret_bits<float>(uint32_t(static_cast<const uint16_t*>(scales)[i]) << 16);
    case ScaleType::f16: {
      const uint32_t h = static_cast<const uint16_t*>(scales)[i], e = h >> 10 & 31, m = h & 1023;
      const uint32_t sign = h >> 15 << 31;
      if (e == 0) return (sign ? -1.0f : 1.0f) * float(m) * 0x1p-24f;
      return reinterpret_bits<float>(sign | (e == 31 ? 255 : e + 112) << 23 | m << 13);
    }
    case ScaleType::e8m0: {
      const unsigned e = static_cast<const uint8_t*>(scales)[i];
      return e == 255 ? NAN : e ? reinterpret_bits<float>(e << 23) : 0x1p-127f;
    }
    case ScaleType::e4m3:
      return decode(Code::e4m3, static_cast<const uint8_t*>(scales)[i]);
    default:
      return 1.0f;
  }
}
FASTGEMM_ANYWHERE float zero_at(const PackedWeight& w, const void* zeros, int64_t i) {
  if (w.zero == Zero::none) return 0.0f;
  return w.zero == Zero::subtracted ? float(static_cast<const int8_t*>(zeros)[i])
                                    : scale_at(w.scale, zeros, i);
}
// The weight of one code. All devices compute the same bits, unless zeros are added: nvcc then fuses the
// multiplication and the addition.
FASTGEMM_ANYWHERE float weight_of(const PackedWeight& w, float code, float scale, float zero) {
  const float x = w.zero == Zero::added ? code * scale + zero : (code - zero) * scale;
  return w.global ? x * *w.global : x;
}

// One weight of (n, k), the slow way: for level 1 and for the edges of other kernels.
FASTGEMM_ANYWHERE float weight_at(const PackedWeight& w, const void* b, int64_t k_size, int64_t n,
                                  int64_t k) {
  const auto* bytes = static_cast<const unsigned char*>(b);
  const unsigned mask = bits_of(w.code) == 4 ? 15u : 255u;
  if (!w.units) {
    const int64_t pitch = bits_of(w.code) == 4 ? (k_size + 1) / 2 : k_size;
    const unsigned byte = bytes[n * pitch + (bits_of(w.code) == 4 ? k / 2 : k)];
    const unsigned code = bits_of(w.code) == 4 ? byte >> (k % 2 * 4) & mask : byte;
    const int64_t i = n / w.group_n * blocks(k_size, w.group_k) + k / w.group_k;
    return weight_of(w, decode(w.code, code), scale_at(w.scale, w.scales, i), zero_at(w, w.zeros, i));
  }
  const unsigned char* unit =
      bytes + (n / kRows * blocks(k_size, kColumns) + k / kColumns) * unit_bytes(w, k_size);
  const int r = int(n % kRows), c = int(k % kColumns);
  const Place at = place_in_unit(w.code, r, c);
  const float code = decode(w.code, unit[at.byte] >> at.bit & mask);
  if (w.by_rows(k_size)) return weight_of(w, code, scale_at(w.scale, w.scales, n), zero_at(w, w.zeros, n));
  const unsigned char* scales = unit + unit_code_bytes(w);
  const int i = scale_in_unit(w, r, c);
  return weight_of(w, code, scale_at(w.scale, scales, i),
                   zero_at(w, scales + unit_scale_bytes(w, k_size), i));
}

}  // namespace packed
}  // namespace fastgemm
