// Tiles of lines (parts/line_tile.cuh) of operands that lie anywhere: rows that begin at multiples of 16
// bytes come by cp.async, others through registers, where two aligned vectors become one that is not. A copy
// into the workspace, which is what the rungs for large products make of such an operand, would be a launch
// of its own and take longer than a small product.
#pragma once

#include "cuda/gemm/parts/copied_operand.cuh"
#include "cuda/gemm/parts/line_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// An operand (side, k) as in RowsOperand, its rows anywhere. [data, end) is what it occupies in memory.
template <class T>
struct LineOperand {
  const T *data, *end;
  int64_t row_stride, batch_stride;
  int side, k;
  bool along_k, aligned;  // aligned: rows begin at multiples of 16 bytes
  bool whole = false;     // of whole tiles, wherever they are copied
};

// The operand whose element (s, k) lies at data + s * side_stride + k * k_stride.
template <class T>
LineOperand<T> line_operand(const T* data, int64_t side, int64_t k, int64_t side_stride, int64_t k_stride,
                            int64_t batch_stride, int batch) {
  const bool along_k = k == 1 || k_stride == 1;
  const int64_t rows = along_k ? side : k, columns = along_k ? k : side;
  PackedRows<T> p{data, rows == 1 ? 0 : along_k ? side_stride : k_stride, batch == 1 ? 0 : batch_stride};
  const T* const end = data + (batch - 1) * p.batch_stride + (rows - 1) * p.row_stride + columns;
  return {data, end, p.row_stride, p.batch_stride, int(side), int(k), along_k, rows_aligned(p)};
}

// 16 bytes from anywhere: `valid` elements, then zeros. What lies around them in memory is read where it
// belongs to the operand.
template <class T>
__device__ __forceinline__ void copy_unaligned(unsigned char* to, const T* from, int valid,
                                               const LineOperand<T>& operand) {
  constexpr int kUnit = kPer16Bytes<T>;
  const int beyond = int(reinterpret_cast<uintptr_t>(from) % 16), skipped = beyond / int(sizeof(T));
  const T* const aligned = from - skipped;
  if (valid > 0 && aligned >= operand.data && operand.end - aligned >= 2 * kUnit) {
    const Unit low = load_vector<Unit>(aligned), high = load_vector<Unit>(aligned + kUnit);
    Unit unit = bytes_at<sizeof(T)>(low, high, beyond);
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int left = valid * int(sizeof(T)) - 4 * i;
      unit[i] = left >= 4 ? unit[i] : left > 0 ? unit[i] & ((1u << 8 * left) - 1) : 0;
    }
    store_vector(to, unit);
  } else {
    Vector16<T> v;
    FASTGEMM_UNROLL
    for (int e = 0; e < kUnit; ++e) v[e] = e < valid ? from[e] : T{};
    store_vector(reinterpret_cast<T*>(to), v);
  }
}

// One thread's share of the copies of a tile that is one box: a unit of every (THREADS / 8)th line.
// Stages follow each other in a ring. `aligned`: both operands' rows begin at multiples of 16 bytes.
//
// Where a copy goes is a register of each thread that walks around the ring. Computed from the number of the
// stage it becomes the sum of such a register and a uniform one, and where such a copy has a cache policy,
// ptxas (13.0) names uniform registers that nobody has written: an illegal instruction.
template <class Tile, class T, int THREADS, int STAGES, int STAGE_BYTES, bool aligned>
class LineCopy {
  static constexpr int kAtOnce = THREADS / 8, kUnit = kPer16Bytes<T>;
  static_assert(Tile::kLines % kAtOnce == 0 && kAtOnce % Tile::Order::kPeriod == 0);
  static_assert(Tile::kAlongK || Tile::kSide == Tile::kLine, "one box");

 public:
  // Of the tile at side0, from stage `first` on, to its place in the first stage of the ring.
  __device__ __forceinline__ LineCopy(const LineOperand<T>& from, int batch, int side0, int first,
                                      unsigned char* ring)
      : operand_(from) {
    const int line = int(threadIdx.x / 8), unit = int(threadIdx.x % 8);
    row_ = (Tile::kAlongK ? side0 : first * Tile::kK) + line;
    column_ = (Tile::kAlongK ? first * Tile::kK : side0) + unit * kUnit;
    from_ = from.data + batch * from.batch_stride + row_ * from.row_stride + column_;
    to_ = ring + Tile::offset(line, unit);
  }

  // The next stage, zeros outside the operand.
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
      copy_lines([&](unsigned char* to, int) { copy_async_streaming(to, from, 16); });
    } else {
      copy_lines([&](unsigned char* to, int valid) {
        if (aligned || operand_.aligned)
          copy_async_streaming(to, from, valid * int(sizeof(T)));
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
