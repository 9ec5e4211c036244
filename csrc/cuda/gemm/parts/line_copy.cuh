// Copies a thread's share of a tile of lines (parts/line_tile.cuh) from an operand whose rows may begin at
// any address. cp.async copies units at multiples of 16 bytes; others go through registers
// (parts/sources/unaligned.cuh). Elements outside the operand are zeros. The operand is not copied to the
// workspace first, because for a small product that launch would take longer than the product.
//
//   threads 0 .. 7    line 0   |unit 0|unit 1| ... |unit 7|      a line is 128 bytes, swizzled; a thread
//   threads 8 .. 15   line 1   |unit 0|unit 1| ... |unit 7|      brings the same unit of every
//         ...                                                    (THREADS / 8)th line
#pragma once

#include "cuda/gemm/parts/line_tile.cuh"
#include "cuda/gemm/parts/sides.cuh"
#include "cuda/gemm/parts/sources/copied_operand.cuh"
#include "cuda/gemm/parts/sources/unaligned.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A RowsOperand whose rows may begin at any address. It occupies [data, end) in memory.
template <class T>
struct LineOperand : RowsOperand<T> {
  const T* end;
  bool aligned;        // rows begin at multiples of 16 bytes
  bool whole = false;  // it consists of whole tiles
};

template <class T>
LineOperand<T> line_operand(const Side<T>& s, int batch) {
  const bool along_k = s.k == 1 || s.k_stride == 1;
  const int64_t rows = along_k ? s.side : s.k, columns = along_k ? s.k : s.side;
  const PackedRows<T> p{s.data,
                        rows == 1 ? 0
                        : along_k ? s.side_stride
                                  : s.k_stride,
                        batch == 1 ? 0 : s.batch_stride};
  const T* const end = s.data + (batch - 1) * p.batch_stride + (rows - 1) * p.row_stride + columns;
  return {{s.data, p.row_stride, p.batch_stride, int(s.side), int(s.k), along_k}, end, rows_aligned(p)};
}

// Stores 16 bytes from any address: `valid` elements, then zeros.
template <class T>
__device__ __forceinline__ void copy_unaligned(unsigned char* to, const T* from, int valid,
                                               const LineOperand<T>& operand) {
  UnalignedUnit<sizeof(T)> around;
  if (valid <= 0 || !around.load(from, operand.data, operand.end))
    return store_vector(to, first_elements(from, valid));
  Unit unit = around.take();
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int left = valid * int(sizeof(T)) - 4 * i;
    unit[i] = left >= 4 ? unit[i] : left > 0 ? unit[i] & ((1u << 8 * left) - 1) : 0;
  }
  store_vector(to, unit);
}

// Copies the stages of a tile, each one box, into a ring, one after another. With `aligned` the rows of both
// operands begin at multiples of 16 bytes.
//
// Each thread keeps the address that it writes to in a register that advances around the ring. Computed from
// the stage's number, the address would be the sum of a register and a uniform register. For copies to such
// addresses with a cache policy, ptxas 13.0 emits uniform registers that no instruction has written, which
// ends in an illegal instruction.
template <class Tile, class T, int THREADS, int STAGES, int STAGE_BYTES, bool aligned>
class LineCopy {
  static constexpr int kAtOnce = THREADS / 8, kUnit = kPer16Bytes<T>;
  static_assert(Tile::kLines % kAtOnce == 0 && kAtOnce % Tile::Order::kPeriod == 0);
  static_assert(Tile::kAlongK || Tile::kSide == Tile::kLine, "one box");

 public:
  // Begins with stage `first` of the tile at side0. `ring` is the address of the tile in the ring's first
  // stage.
  __device__ __forceinline__ LineCopy(const LineOperand<T>& from, int batch, int side0, int first,
                                      unsigned char* ring)
      : operand_(from) {
    const int line = int(threadIdx.x / 8), unit = int(threadIdx.x % 8);
    row_ = (Tile::kAlongK ? side0 : first * Tile::kK) + line;
    column_ = (Tile::kAlongK ? first * Tile::kK : side0) + unit * kUnit;
    from_ = from.data + batch * from.batch_stride + row_ * from.row_stride + column_;
    to_ = ring + Tile::offset(line, unit);
  }

  // Copies the next stage, with zeros outside the operand.
  __device__ __forceinline__ void copy() {
    const int rows = Tile::kAlongK ? operand_.side : operand_.k;
    const int columns = Tile::kAlongK ? operand_.k : operand_.side;
    const int inside = max(0, min(columns - column_, kUnit));
    const T* from = from_;
    const auto copy_lines = [&](auto&& copy_unit) {
      FASTGEMM_UNROLL
      for (int i = 0; i < Tile::kLines / kAtOnce; ++i, from += kAtOnce * operand_.row_stride)
        copy_unit(to_ + i * kAtOnce * Tile::Order::kPitch, row_ + i * kAtOnce < rows ? inside : 0);
    };
    if (aligned && operand_.whole) {  // fewer instructions before the first copies
      copy_lines([&](unsigned char* to, int) { copy_async_evict_first(to, from, 16); });
    } else {
      copy_lines([&](unsigned char* to, int valid) {
        if (aligned || operand_.aligned)
          copy_async_evict_first(to, from, valid * int(sizeof(T)));
        else
          copy_unaligned(to, from, valid, operand_);
      });
    }
    (Tile::kAlongK ? column_ : row_) += Tile::kK;
    from_ += Tile::kAlongK ? Tile::kK : Tile::kK * operand_.row_stride;
    to_ += STAGE_BYTES;
    if (++stage_ == STAGES) to_ -= STAGES * STAGE_BYTES, stage_ = 0;
  }

 private:
  const LineOperand<T>& operand_;
  const T* from_;
  unsigned char* to_;
  int row_, column_, stage_ = 0;
};

}  // namespace fastgemm::FASTGEMM_TARGET
