// The scales of a tile of 128 x 128 numbers that becomes codes of 8 bits, along its rows and along its
// columns. Contract: find_divisors() makes of the largest moduli of the parts of lines what they are divided
// by, and stores their scales; EightDivisors are those of a thread's lines (fp8/quantize_tiles.cu).
#pragma once

#include "cuda/gemm/fp8/quantize_runs.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kTile = 128, kAcross = kTile / kEach, kWarps = kThreads / 32;
// The shortest block of a line, and how many a tile's line has.
inline constexpr int kPart = 32, kParts = kTile / kPart;

// The codes of x or of the transposed matrix: their lines are rows of x, or columns. Blocks have 1 line, 128
// or all, and of each line 32 numbers, 128 or all, so shifts take the place of divisions.
struct Side {
  int64_t lines, length;
  int line_shift, part_shift;
  int64_t scale_cols;
  void* scales;
  const uint32_t* largest = nullptr;  // of each line, if lines are longer than a tile and have one scale

  explicit Side(const QuantizeFp8& g)
      : lines(g.rows),
        length(g.cols),
        line_shift(g.block_rows == 1 ? 0 : shift_of(g.block_rows, g.rows)),
        part_shift(shift_of(g.block_cols, g.cols)),
        scale_cols(g.scale_cols()),
        scales(g.scales) {}
  bool is_all() const { return (lines == 1 || line_shift == kAll) && part_shift == kAll; }
  bool has_long_lines() const { return line_shift == 0 && part_shift == kAll && length > kTile && lines > 1; }
  // Whether the tile, or all of x, has one scale.
  __host__ __device__ __forceinline__ bool is_one_block() const {
    return line_shift > 0 || (lines == 1 && part_shift == kAll);
  }

  // Which of a tile's divisors of a line belongs to its number `at`.
  __device__ __forceinline__ bool has_short_parts() const { return part_shift == 5; }
  __device__ __forceinline__ int part_of(int at) const { return has_short_parts() ? at / kPart : 0; }

  static constexpr int kAll = 62;
  static int shift_of(int64_t block, int64_t size) { return block >= size ? kAll : block == kPart ? 5 : 7; }
};

// What a tile has for each part of its lines.
template <class X>
struct Parts {
  alignas(16) X of[kParts][kTile];
};
struct Divisors {
  Parts<float> scale, reciprocal;
};

__device__ __forceinline__ uint32_t largest_of_line(const Parts<uint32_t>& found, int line) {
  return max(max(found.of[0][line], found.of[1][line]), max(found.of[2][line], found.of[3][line]));
}

// The divisors of a tile whose lines are those from `top` on, and begin at `left`. `all`: the largest modulus
// of a block that is the tile, or all of x. Each scale is stored by a thread of the tile that has its first
// number.
template <Fp8 code>
__device__ __forceinline__ void find_divisors(const QuantizeFp8& g, const Side& side, int64_t top,
                                              int64_t left, uint32_t all, const Parts<uint32_t>& found,
                                              Divisors& divisors) {
  for (int i = int(threadIdx.x); i < (side.has_short_parts() ? kParts * kTile : kTile); i += kThreads) {
    // Neighbouring threads store neighbouring scales.
    const int part = side.has_short_parts() ? i % kParts : 0, line = side.has_short_parts() ? i / kParts : i;
    const int64_t l = top + line, at = left + part * kPart;
    uint32_t bits = all;
    if (side.largest != nullptr)
      bits = side.largest[min(l, side.lines - 1)];
    else if (!side.is_one_block())
      bits = side.has_short_parts() ? found.of[part][line] : largest_of_line(found, line);
    const float scale =
        g.scale_is_given ? packed::scale_at(g.scale, side.scales, 0) : fp8::scale_of<code>(bits, g.scale);
    // Zeros divided by 1 are zeros, too, and are divided quickly: padding, and what lies outside of x.
    const float by = bits == 0 && !g.scale_is_given ? 1.0f : scale;
    divisors.scale.of[part][line] = by;
    divisors.reciprocal.of[part][line] = 1.0f / by;
    const int64_t begins =
        (l & ((int64_t{1} << side.line_shift) - 1)) | (at & ((int64_t{1} << side.part_shift) - 1));
    if (begins == 0 && l < side.lines && at < side.length && !g.scale_is_given)
      fp8::store_scale(g.scale, side.scales,
                       (l >> side.line_shift) * side.scale_cols + (at >> side.part_shift), scale);
  }
}

// The divisors of the eight lines from `line` on, in one part of them.
struct EightDivisors {
  Vector<float, 4> scale[2], reciprocal[2];

  __device__ __forceinline__ EightDivisors(const Divisors& d, int part, int line) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i) {
      scale[i] = load_vector<Vector<float, 4>>(&d.scale.of[part][line + 4 * i]);
      reciprocal[i] = load_vector<Vector<float, 4>>(&d.reciprocal.of[part][line + 4 * i]);
    }
  }
  __device__ __forceinline__ Divisor operator[](int i) const {
    return {scale[i / 4][i % 4], reciprocal[i / 4][i % 4]};
  }
  __device__ __forceinline__ bool exact() const {
    bool all = true;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) all = all && (*this)[i].exact;
    return all;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
