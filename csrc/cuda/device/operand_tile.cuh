// The tile of an operand in shared memory, as the tensor memory accelerator writes it and wgmma reads it:
// (side, kK), where kK is 128 bytes of k, in swizzled rows of 128 bytes, from a multiple of 1024 bytes on.
//
//   Major::k, one box: a row for each m or n      Major::mn, boxes of kK rows: 128 bytes of m or n
//     side 0 | k 0 ........ 127 bytes |             k 0 | side 0 ... |   | side 64 ... |
//     side 1 | k 0 ........ 127 bytes |             k 1 | side 0 ... |   | side 64 ... |
#pragma once

#include "cuda/device/dispatch.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/wgmma.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Boxes (kK, kSide) of an operand with m or n along rows. Boxes of 4-byte elements are read by threads, not
// by wgmma. They are 64 bytes wide: the 16 rows of m that one warp needs.
template <class T>
struct SideBox {
  static constexpr Swizzle kSwizzle = sizeof(T) == 4 ? Swizzle::bytes64 : Swizzle::bytes128;
  static constexpr int kSide = int(kSwizzle) / int(sizeof(T));
};

// The tile (side, kK) of an operand with elements of T: `side` rows of m or n, 128 bytes along k. If k runs
// along rows, it is one box (side, kK). If m or n does, it is boxes (kK, SideBox<T>::kSide) side by side.
template <class T, Major major, int side>
struct OperandTile {
  static constexpr int kK = 128 / int(sizeof(T)), kBytes = side * 128;
  static constexpr int kSteps = 4;  // instructions along k, 32 bytes each
  static constexpr bool kInRows = major == Major::k;
  static constexpr int kBoxSide = kInRows ? side : SideBox<T>::kSide, kBoxes = side / kBoxSide;
  static_assert(side % (kInRows ? 8 : 64) == 0 && side <= 256, "a box has at most 256 rows");

  // With `evict_first` L2 may evict the tile first, because it is read only once.
  template <bool evict_first = false>
  __device__ __forceinline__ static void load(unsigned char* to, const TensorMap* map, Barrier* full,
                                              int first, int k, int plane) {
    constexpr auto kLoad = evict_first ? &load_box_evict_first : &load_box;
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      const int from = first + i * kBoxSide;
      kLoad(to + i * kBoxSide * 128, map, full, kInRows ? k : from, kInRows ? from : k, plane);
    }
  }

  // The descriptor for the first instruction, from row `first` of m or n on, a multiple of 64.
  __device__ __forceinline__ static MatrixDescriptor descriptor(const unsigned char* tile, int first = 0) {
    return box_descriptor<major, Swizzle::bytes128>(tile + first * 128, kInRows ? side : kK);
  }
  __device__ __forceinline__ static constexpr int step(int i) {
    return box_step<major, Swizzle::bytes128>(kInRows ? side : kK, i);
  }
};

// sum (64, 2 R) += the product of two tiles along kK, or = without `accumulate`. a and b are those of step 0.
template <class T, class A, class B, Major a_major, Major b_major, int R>
__device__ __forceinline__ void multiply_tiles(Accumulator<T> (&sum)[R], MatrixDescriptor a,
                                               MatrixDescriptor b, bool accumulate) {
  FASTGEMM_UNROLL
  for (int i = 0; i < A::kSteps; ++i)
    wgmma<T, a_major, b_major>(sum, a.at(A::step(i)), b.at(B::step(i)), accumulate || i > 0);
}

// Calls body.operator()<a_major, b_major>(). Both are Major::k unless T has 16 bits.
template <class T, class Body>
void with_majors(Major a, Major b, Body&& body) {
  if constexpr (sizeof(T) != 2) {
    body.template operator()<Major::k, Major::k>();
  } else {
    if (a == Major::k && b == Major::k) return body.template operator()<Major::k, Major::k>();
#if !FASTGEMM_NO_TWINS  // They are like the kernels whose operands have the same Major (dispatch.cuh).
    if (a == Major::k) return body.template operator()<Major::k, Major::mn>();
    if (b == Major::k) return body.template operator()<Major::mn, Major::k>();
#endif
    a == b ? body.template operator()<Major::mn, Major::mn>() : not_built();
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
