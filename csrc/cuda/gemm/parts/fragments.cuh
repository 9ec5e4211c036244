// The operand of wgmma in registers: how an operand with m along its rows, of a type that the tensor cores do
// not transpose, is multiplied without a copy. The boxes of a tile (kK, 64) that the tensor memory
// accelerator brings have the wrong index along rows for the tensor cores, but a thread can read them any way
// it likes, and what it reads goes into a register operand. That costs as many bytes of shared memory as the
// tensor cores would have read, in a few instructions: 8 LDS of 8 bytes a stage of float32, 4 ldmatrix of
// int8.
//
// Which row of the 64 a row of the instruction is does not matter as long as the results go there. So rows g
// and g + 8 of the instruction, which a lane of group g holds, are neighbours in memory and come together.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Of a tile OperandTile<T, Major::mn, side>: a lane's registers of 16 rows.
template <class T>
class Fragments;

// Boxes (32, 64 bytes), one a warp. At a time 16 lanes read 8 bytes each: 4 neighbouring k, which lie in
// two lines of all 32 banks, swizzled by 0 and 1, of 4 groups. Units 0 and 3 of a box are in different places
// of each, so groups 0 to 3 have their halves, and groups 4 to 7 those of units 1 and 2.
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

  // Of instruction `step`, in the stage that begins `bytes` behind the first.
  __device__ __forceinline__ void load(uint32_t (&a)[4], int bytes, int step) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < 2; ++i) {
      const auto pair = load_vector<Vector<uint32_t, 2>>(from_[i] + bytes + step * (8 * 64));
      a[2 * i] = pair[0], a[2 * i + 1] = pair[1];
    }
  }

 private:
  static constexpr int kBoxBytes = 32 * 64;
  const unsigned char* from_[2];  // k = lane % 4 and 4 more
};

// Boxes (128, 128 bytes), a 16-byte unit of each row a warp. ldmatrix transposes pairs of bytes: a lane of
// group g gets bytes 2 g and 2 g + 1 of two k from each matrix of 8 rows. Two matrices have the four k of a
// register for lanes 0 to 3 of a group: 4 t to 4 t + 3, the first two in one matrix for t = 0 and 1, in the
// other for t = 2 and 3, so that the rows of a matrix are swizzled in eight different ways.
template <>
class Fragments<int8_t> {
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
  uint32_t even_;  // selects the even bytes of two registers, along k
};

}  // namespace fastgemm::FASTGEMM_TARGET
