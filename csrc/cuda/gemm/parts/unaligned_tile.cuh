// The way of an operand into shared memory where no box can be read, because its rows begin anywhere: threads
// load the aligned 16 bytes around what they want, shift, and write the tile as the tensor memory accelerator
// would have. A copy of such weights would cost three times the product itself.
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/wgmma_operand.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// 16 bytes of the tile: elements of a row that begin at any multiple of their size, zeros where there are
// none.
template <class T>
class ShiftedUnit {
 public:
  // From p on, of which `valid` elements count, in a matrix that lies in [begin, end).
  __device__ __forceinline__ void load(const T* p, int valid, const T* begin, const T* end) {
    constexpr int kUnit = kPer16Bytes<T>;
    offset_ = int(reinterpret_cast<uintptr_t>(p) % 16);
    const T* const aligned = p - offset_ / int(sizeof(T));
    if (valid < kUnit || aligned < begin || aligned + (offset_ ? 2 * kUnit : kUnit) > end)
      return load_elements(p, valid);
    low_ = load_vector<Unit>(aligned);
    if (offset_) high_ = load_vector<Unit>(aligned + kUnit);
  }

  __device__ __forceinline__ Unit take() const { return bytes_at<sizeof(T)>(low_, high_, offset_); }

 private:
  // At the ends of rows, beyond which nothing counts, and of the matrix, beyond which nothing is read.
  __device__ __forceinline__ void load_elements(const T* p, int valid) {
    using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>;
    uint64_t half[2] = {};
    FASTGEMM_UNROLL
    for (int i = 0; i < kPer16Bytes<T>; ++i) {
      const int bit = 8 * int(sizeof(T)) * i;
      if (i < valid) half[bit / 64] |= uint64_t{reinterpret_cast<const Bits*>(p)[i]} << bit % 64;
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) low_[i] = uint32_t(half[i / 2] >> 32 * (i % 2));
    offset_ = 0;
  }

  Unit low_, high_{};
  int offset_;  // bytes before those that count
};

// What a thread of THREADS brings of each tile.
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
      copy_[i].load(begin + row * from.row_stride + column, row < rows ? columns - column : 0, begin, end);
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
  static constexpr int kLines = THREADS / 8;  // of 128 bytes, at a time
  static constexpr int kBoxLines = Tile::kInRows ? Tile::kBoxSide : Tile::kK;

  int line_, unit_;
  ShiftedUnit<T> copy_[kUnits];
};

}  // namespace fastgemm::FASTGEMM_TARGET
