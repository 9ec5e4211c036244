// Copies a tile of an operand that the tensor memory accelerator cannot read, because its rows begin at any
// address. Threads load unaligned units (parts/sources/unaligned.cuh) and write them swizzled, as the TMA
// would have written a box. This saves the launch that copies such an operand, which for weights would cost
// more than the product.
#pragma once

#include "cuda/gemm/parts/sources/unaligned.cuh"
#include "cuda/gemm/parts/sources/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The units of 16 bytes of each tile that one of THREADS threads copies. load() loads them, and store()
// writes them to the tile, with zeros where the operand has no elements.
template <class T, class Tile, int THREADS>
class UnitCopy {
 public:
  static constexpr int kUnits = Tile::kBytes / 16 / THREADS;
  static_assert(kUnits * THREADS * 16 == Tile::kBytes);

  __device__ __forceinline__ explicit UnitCopy(int thread) : line_(thread / 8), unit_(thread % 8) {}

  __device__ __forceinline__ void load(const BoxOperand<T>& from, int first, int k0, int batch) {
    const int rows = int(Tile::kInRows ? from.side : from.k),
              columns = int(Tile::kInRows ? from.k : from.side);
    const T* const begin = from.data + batch * from.batch_stride;
    const T* const end = begin + (rows - 1) * from.row_stride + columns;
    FASTGEMM_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int line = line_ + i * kLines, box = line / kBoxLines;
      const int row = (Tile::kInRows ? first : k0) + line % kBoxLines;
      const int column = (Tile::kInRows ? k0 : first + box * Tile::kBoxSide) + unit_ * kPer16Bytes<T>;
      const T* const p = begin + row * from.row_stride + column;
      const int valid = row < rows ? columns - column : 0;
      if (valid < kPer16Bytes<T> || !copy_[i].load(p, begin, end)) copy_[i].set(first_elements(p, valid));
    }
  }
  __device__ __forceinline__ void store(unsigned char* tile) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const uint32_t place = uint32_t(line_ + i * kLines) * 128 + uint32_t(unit_) * 16;
      store_vector(tile + swizzled<Swizzle::bytes128>(place), copy_[i].take());
    }
  }

 private:
  static constexpr int kLines = THREADS / 8;  // lines of 128 bytes that the threads copy at a time
  static constexpr int kBoxLines = Tile::kInRows ? Tile::kBoxSide : Tile::kK;

  int line_, unit_;
  UnalignedUnit<sizeof(T)> copy_[kUnits];
};

}  // namespace fastgemm::FASTGEMM_TARGET
