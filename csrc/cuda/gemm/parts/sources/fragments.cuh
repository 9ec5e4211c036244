// Fragments of wgmma's A in registers. They are for an operand that has m along its rows, of a type that the
// tensor cores do not transpose: it is multiplied without being copied first. Contract: row(group, half) says
// which row of the tile a row of the instruction is; load(a, bytes, step) loads the registers of an
// instruction.
//
//   instruction row (lane group g)   g              g + 8            row() maps both to neighbours in
//   memory, row of the tile                  row(g, 0)      row(g, 0) + 1    so that one load brings both
//
// The TMA brings boxes of a tile (kK, 64). Their rows run along m, but in shared memory the tensor cores need
// rows along k. Threads, however, can read an operand into registers in any order. That reads as many bytes
// of shared memory as the tensor cores would, in a few instructions: 8 LDS of 8 bytes for a stage of float32,
// 4 ldmatrix for int8. Any order of the 64 rows will do, as long as the results are stored in the same order.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Which of the warp's 16 rows the instruction's row lane / 4 + 8 * half computes.
struct InOrder {
  __device__ __forceinline__ static constexpr int row(int group, int half) { return group + 8 * half; }
};

// Loads a lane's registers of 16 rows of a tile OperandTile<T, Major::mn, side>.
template <class T>
class Fragments;

// For float32 the boxes are (32, 64 bytes), one for each warp. Half a warp reads 16 times 8 bytes at a time:
// 4 neighbouring k of 4 groups. The 4 k lie in two lines of all 32 banks, in which the swizzle XORs the
// numbers of units with 0 and 1. Units 0 and 3 of a box lie in different banks of the two lines, and so do
// units 1 and 2. Groups 0 to 3 read the halves of units 0 and 3, groups 4 to 7 those of units 1 and 2, both
// without bank conflicts.
template <>
class Fragments<Tf32> {
 public:
  __device__ __forceinline__ static constexpr int row(int group, int half) {
    const int unit = group / 2 % 2 * 3 ^ group / 4;
    return 4 * unit + 2 * (group % 2) + half;
  }

  __device__ __forceinline__ Fragments(const unsigned char* tile, int warp, int lane) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int offset = (lane % 4 + 4 * i) * 64 + row(lane / 4, 0) * 4;
      from_[i] = tile + warp * kBoxBytes + swizzled<Swizzle::bytes64>(uint32_t(offset));
    }
  }

  // Loads the registers of instruction `step` of the stage that begins `bytes` bytes after the first.
  __device__ __forceinline__ void load(uint32_t (&a)[4], int bytes, int step) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto pair = load_vector<Vector<uint32_t, 2>>(from_[i] + bytes + step * (8 * 64));
      a[2 * i] = pair[0], a[2 * i + 1] = pair[1];
    }
  }

 private:
  static constexpr int kBoxBytes = 32 * 64;
  const unsigned char* from_[2];  // at k = lane % 4 and k = lane % 4 + 4
};

// For bytes the boxes are (128, 128 bytes), and each warp has a 16-byte unit of every row. ldmatrix
// transposes pairs of bytes: a lane of group g gets bytes 2 g and 2 g + 1 of two k from each matrix of 8
// rows. Two matrices hold the four k of a register, 4 t to 4 t + 3 for lane t of a group. The first two of
// these lie in one matrix for t = 0 and 1, and in the other for t = 2 and 3. So the rows of a matrix are
// swizzled in eight different ways and have no bank conflicts.
template <class T>
  requires(sizeof(T) == 1)
class Fragments<T> {
 public:
  __device__ __forceinline__ static constexpr int row(int group, int half) { return 2 * group + half; }

  __device__ __forceinline__ Fragments(const unsigned char* tile, int warp, int lane)
      : even_(lane % 4 < 2 ? 0x6420 : 0x2064) {
    const int matrix = lane / 8, t = lane % 8 / 2;
    const int k = 16 * (matrix / 2) + 4 * t + 2 * (matrix % 2 ^ t / 2) + lane % 2;
    from_ = tile + swizzled<Swizzle::bytes128>(uint32_t(k * 128 + warp * 16));
  }

  __device__ __forceinline__ void load(uint32_t (&a)[4], int bytes, int step) const {
    uint32_t pairs[4];
    load_matrices<4, true>(pairs, from_ + bytes + step * (32 * 128));
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; i += 2) {
      a[i] = __byte_perm(pairs[i], pairs[i + 1], even_);
      a[i + 1] = __byte_perm(pairs[i], pairs[i + 1], even_ + 0x1111);
    }
  }

 private:
  const unsigned char* from_;
  uint32_t even_;  // the selector of __byte_perm for the even bytes of two registers, in the order of k
};

}  // namespace fastgemm::FASTGEMM_TARGET
