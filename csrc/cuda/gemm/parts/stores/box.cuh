// A box: 16 rows of a warp's sums by 128 bytes, rounded, as the TMA writes them to C. Contract: Box::take()
// rounds sums into registers, and write() and read() move them to and from a box in shared memory, swizzled.
//
//   registers (wgmma layout)       box in shared memory
//   row lane/4:   c0 c1 ...        +--------------------------+  128 bytes
//   row lane/4+8: c0 c1 ...  <->   | 16-byte unit u of row r  |
//                                  | lies at u ^ (r % 8)      |  16 rows
//                                  +--------------------------+
//
// A lane holds pairs of neighbouring columns, so plain stores would fill only 16 bytes of a row at a time,
// half a sector. Boxes are stored as whole lines. A warp's 16 rows may be rows of C in another order
// (parts/sources/fragments.cuh), or columns of C where the kernel computes C^T.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/sources/fragments.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kWarpRows = 16, kBoxBytes = kWarpRows * 128;
inline constexpr int kBoxRegisters = kBoxBytes / 32 / 4;  // per lane

// The shape of a box of elements of Out, 2 or 4 bytes each: (16, 128 bytes) of C, or transposed (32, 64
// bytes) or (64, 32 bytes).
__host__ __device__ constexpr Swizzle box_swizzle(bool transposed, int element_bytes) {
  return !transposed ? Swizzle::bytes128 : element_bytes == 4 ? Swizzle::bytes64 : Swizzle::bytes32;
}
template <class Out, bool transposed>
struct BoxShape {
  static constexpr Swizzle kSwizzle = box_swizzle(transposed, sizeof(Out));
  static constexpr int kColumns = int(kSwizzle) / int(sizeof(Out)), kRows = kBoxBytes / int(kSwizzle);
  static_assert(!transposed || kColumns == kWarpRows);
};

// The place of a box in C.
struct RowsPlace {
  int row, column, plane;  // plane: the matrix of the batch
};

// A box in registers. write() and read() move it to shared memory and back, in pieces of 16 bytes per lane.
// Eight lanes at a time access 16-byte units in eight different groups of banks, so 16-bit elements have no
// bank conflicts.
template <class Out, class Rows, bool transposed>
struct Box {
  static constexpr int kPieces = kBoxRegisters / 4, kPerRegister = 4 / int(sizeof(Out));
  static constexpr int kSums = kBoxRegisters * kPerRegister;  // per lane
  using Shape = BoxShape<Out, transposed>;
  static_assert(kPerRegister == 1 || std::is_same_v<Rows, InOrder>);
  uint32_t bits[kPieces][4];

  // Sets each element of the box to of(sum, held). held() returns the element that the box holds at that
  // place.
  template <class Acc, int R, class Of>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int index, Of&& of) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxRegisters; ++i) {
      uint32_t& word = bits[i / 4][i % 4];
      Acc value[kPerRegister];
      FASTGEMM_UNROLL
      for (int j = 0; j < kPerRegister; ++j)
        value[j] = of(sum[index * kSums + i * kPerRegister + j], [&] { return element(word, j); });
      if constexpr (kPerRegister == 2)
        word = round_pair<Out>(value[0], value[1]);
      else if constexpr (std::is_same_v<Acc, float>)
        word = __float_as_uint(value[0]);
      else
        word = value[0];
    }
  }

  __device__ __forceinline__ void write(unsigned char* box) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      if constexpr (kPerRegister == 2) {
        store_matrices<4, transposed>(box + offset_of_rows(i), bits[i]);
      } else if constexpr (kInWords) {
        FASTGEMM_UNROLL
        for (int j = 0; j < 4; ++j) store_vector(box + offset_of_word(i, j), bits[i][j]);
      } else {
        FASTGEMM_UNROLL
        for (int j = 0; j < 2; ++j)
          store_vector(box + offset_of_pair(i, j),
                       Vector<uint32_t, 2>{{bits[i][first(j)], bits[i][second(j)]}});
      }
    }
  }
  __device__ __forceinline__ void read(const unsigned char* box) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      if constexpr (kPerRegister == 2) {
        load_matrices<4, transposed>(bits[i], box + offset_of_rows(i));
      } else if constexpr (kInWords) {
        FASTGEMM_UNROLL
        for (int j = 0; j < 4; ++j) bits[i][j] = load_vector<uint32_t>(box + offset_of_word(i, j));
      } else {
        FASTGEMM_UNROLL
        for (int j = 0; j < 2; ++j) {
          const auto pair = load_vector<Vector<uint32_t, 2>>(box + offset_of_pair(i, j));
          bits[i][first(j)] = pair[0], bits[i][second(j)] = pair[1];
        }
      }
    }
  }

 private:
  // Rows 8 apart are no neighbours in a row of C^T, so their words are stored one by one.
  static constexpr bool kInWords = kPerRegister == 1 && transposed && std::is_same_v<Rows, InOrder>;
  __device__ __forceinline__ static uint32_t offset_of_word(int i, int j) {
    const int lane = fresh_lane();
    return offset_of(lane % 4 * 2 * 64 + lane / 4 * 4, (8 * i + j % 2) * 64 + j / 2 * 8 * 4);
  }
  // The offset of this lane's row in the four 8 x 8 matrices of piece i.
  __device__ __forceinline__ static uint32_t offset_of_rows(int i) {
    const int lane = fresh_lane();
    if constexpr (transposed)  // two matrices side by side, two below: 16 of the sums' columns
      return offset_of((lane / 16 * 8 + lane % 8) * 32 + lane / 8 % 2 * 16, i * 16 * 32);
    return offset_of(lane % 16 * 128 + lane / 16 * 16, i * 32);
  }
  // Which registers of a piece are neighbours in a row of the box, and the offset of such a pair.
  __device__ __forceinline__ static constexpr int first(int j) { return transposed ? j : 2 * j; }
  __device__ __forceinline__ static constexpr int second(int j) { return first(j) + (transposed ? 2 : 1); }
  __device__ __forceinline__ static uint32_t offset_of_pair(int i, int j) {
    const int lane = fresh_lane(), row = Rows::row(lane / 4, transposed ? 0 : j), columns = lane % 4 * 2;
    if constexpr (transposed) return offset_of(columns * 64 + row * 4, (8 * i + j) * 64);
    return offset_of(row * 128 + columns * 4, 8 * i * 4);
  }
  // Adds a part that depends on the lane and a part known at compile time. They share no bit, so the swizzle
  // of the sum is the XOR of their swizzles, and the constant part costs one XOR.
  __device__ __forceinline__ static uint32_t offset_of(int lanes, int constant) {
    return swizzled<Shape::kSwizzle>(uint32_t(lanes)) ^ swizzled<Shape::kSwizzle>(uint32_t(constant));
  }
  __device__ __forceinline__ static auto element(uint32_t word, int j) {
    if constexpr (kPerRegister == 2)
      return widen(Out{uint16_t(word >> 16 * j)});
    else if constexpr (std::is_same_v<Out, float>)
      return __uint_as_float(word);
    else
      return word;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET
