// Levels 4 and 5 of packed weights: a tile of 64 rows and 64 columns, decoded into float32 in shared memory
// by 128 threads. Contract: read_scales(), a barrier, decode(), a barrier; then w[k * kPitch + n] are the
// weights. Codes come as they lie in a unit, 16 bytes a thread, and so may be in global or in shared memory.
//
// Warp i has rows 16 i to 16 i + 15 of the weight. A lane has rows r and r + 8 and pairs of columns. Columns
// are 68 words apart in the tile. So what the lanes of a warp write at a time, 4 columns of 8 rows, is in 32
// banks.
#pragma once

#include "cuda/gemm/packed/fragments.cuh"
#include "cuda/gemm/packed/problem.cuh"
#include "cuda/gemm/packed/unit_scales.cuh"

namespace fastgemm::FASTGEMM_TARGET {

struct WeightTile {
  static constexpr int kN = packed::kRows, kK = 64, kThreads = 128, kPitch = kN + 4;
  static constexpr int kMostGroups = kK / 16;

  alignas(16) float w[kK * kPitch];          // (64, 64): k, n
  alignas(16) float scale[kMostGroups][kN];  // in the order of a unit: those of rows r and r + 8 side by side
  alignas(16) float zero[kMostGroups][kN];
  float normal_floats[16];  // 16 banks: lanes with different codes have no conflicts

  // Once, before anything else.
  __device__ __forceinline__ void init() {
    if (threadIdx.x < 16) normal_floats[threadIdx.x] = packed::normal_float(threadIdx.x);
  }

  // Where the codes of the 64 columns from `column` of a unit on lie in it, and how many bytes they are.
  __device__ __forceinline__ static int first_code(Code code, int column) {
    return column * bits_of(code) * kN / 8;
  }
  __device__ __forceinline__ static int code_bytes(Code code) { return kN * kK * bits_of(code) / 8; }

  __device__ __forceinline__ static int groups(const PackedOperand& b) {
    return b.by_rows || b.weight.group_k >= kK ? 1 : kK / int(b.weight.group_k);
  }

  // Scales and zeros as float32, times the scale of the whole weight. `unit` says where they are.
  __device__ __forceinline__ void read_scales(const PackedOperand& b, const UnitView& unit, int column) {
    const PackedWeight& p = b.weight;
    const float global = p.global ? *p.global : 1.0f;
    const int first = b.by_rows || p.group_k >= packed::kColumns ? 0 : column / int(p.group_k);
    const int rows = p.group_n == 1 ? kN : 1;  // with scales of their own
    for (int i = int(threadIdx.x); i < groups(b) * kN; i += kThreads) {
      const int at = i % kN, r = at / 16 * 16 + at % 16 / 2 + at % 2 * 8;
      const int64_t index = b.by_rows ? unit.first + r : (first + i / kN) * rows + at % rows;
      float s = 0, z = 0;
      if (!b.by_rows || index < b.n) {
        s = read_scale(p.scale, unit.scales, int(index)) * global;
        z = p.zero == Zero::none         ? 0.0f
            : p.zero == Zero::subtracted ? float(int8_t(unit.zeros[index]))
                                         : read_scale(p.scale, unit.zeros, int(index)) * global;
      }
      scale[0][i] = s, zero[0][i] = z;
    }
  }

  __device__ __forceinline__ void decode(const PackedOperand& b, const unsigned char* codes) {
    switch (b.weight.code) {
      case Code::int4:
        return decode_as<Code::int4>(b, codes);
      case Code::nf4:
        return decode_as<Code::nf4>(b, codes);
      case Code::e2m1:
        return decode_as<Code::e2m1>(b, codes);
      case Code::int8:
        return decode_as<Code::int8>(b, codes);
      default:
        return decode_as<Code::e4m3>(b, codes);
    }
  }

 private:
  // The numbers of a step: [register of the fragment][column]. fp16 holds those of all codes but nf4 exactly.
  template <Code code>
  __device__ __forceinline__ void numbers(float (&to)[4][2], const uint32_t* words) const {
    if constexpr (code == Code::nf4) {
      FASTGEMM_UNROLL
      for (int i = 0; i < 8; ++i) to[i / 2][i % 2] = normal_floats[*words >> (i / 2 * 4 + i % 2 * 16) & 15];
    } else {
      uint32_t pairs[4];
      decode_step<Half, code>(pairs, words);
      FASTGEMM_UNROLL
      for (int p = 0; p < 4; ++p) to[p][0] = low_of<Half>(pairs[p]), to[p][1] = high_of<Half>(pairs[p]);
    }
  }

  template <Code code>
  __device__ __forceinline__ void decode_as(const PackedOperand& b, const unsigned char* codes) {
    constexpr int kSteps = kReadSteps<code>;
    const int lane = int(threadIdx.x) % 32, pair = int(threadIdx.x) / 32 * 16 + lane / 4 * 2;
    const int row = int(threadIdx.x) / 32 * 16 + lane / 4, steps_a_group = kK / 16 / groups(b);
    const bool added = b.weight.zero == Zero::added;
    FASTGEMM_NO_UNROLL
    for (int read = 0; read < kK / 16 / kSteps; ++read) {
      const Unit words = load_vector<Unit>(codes + (read * kThreads + threadIdx.x) * 16);
      FASTGEMM_UNROLL
      for (int i = 0; i < kSteps; ++i) {
        const int step = read * kSteps + i, group = step / steps_a_group;
        const auto s = load_vector<Vector<float, 2>>(&scale[group][pair]);
        const auto z = load_vector<Vector<float, 2>>(&zero[group][pair]);
        const float before[] = {added ? 0.0f : z[0], added ? 0.0f : z[1]};  // subtracted from the number
        const float after[] = {added ? z[0] : 0.0f, added ? z[1] : 0.0f};   // added to the product
        float x[4][2];
        numbers<code>(x, &words.v[i * kStepWords<code>]);
        FASTGEMM_UNROLL
        for (int j = 0; j < 8; ++j) {
          const int p = j / 2, odd = j % 2, high = p % 2;
          const float number = (x[p][odd] - before[high]) * s[high] + after[high];
          w[(16 * step + lane % 4 * 2 + p / 2 * 8 + odd) * kPitch + row + 8 * high] = number;
        }
      }
    }
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
