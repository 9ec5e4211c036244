// The main loop of mma_sync and dmma: operand tiles that cp.async brings into shared memory, the
// ring of stages that they form, and the order in which a warp copies, loads and multiplies.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/block_memory.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/operand_rows.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Tile (SIDE, 128 bytes of k) of an operand, in lines of 128 bytes. If the operand runs along k, line s holds
// the k of position s of the side. If it runs along the side, the tile is boxes of kK lines, one after the
// other, and line k of a box holds 128 bytes of the side. Order says where in shared memory a line's units of
// 16 bytes lie: offset<SIDE>(line, unit). From one line to the next the offset grows by kPitch, apart from a
// permutation of units that repeats every kPeriod lines.
template <class T, bool along_k_, int SIDE, class Order_>
struct LineTile {
  using Order = Order_;
  static constexpr bool kAlongK = along_k_, kTf32 = std::is_same_v<T, float>;
  static constexpr int kLine = 128 / int(sizeof(T)), kK = kLine, kSide = SIDE;  // elements
  static constexpr int kLines = SIDE;  // SIDE * kK elements, in either direction
  static constexpr int kBoxLines = kAlongK ? SIDE : kK;
  static constexpr int kBytes = Order::template bytes<SIDE>();
  static_assert(kAlongK || SIDE % kLine == 0, "whole boxes");

  // In bytes.
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return Order::template offset<SIDE>(line, unit);
  }
};

// Lines in which the line's number permutes the units. Lines that are PERIOD apart have the same permutation.
template <int PERIOD>
struct SwizzledLines {
  static constexpr int kPitch = 128, kPeriod = PERIOD;
  template <int SIDE>
  static constexpr int bytes() {
    return SIDE * kPitch;
  }
  template <int SIDE>
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return line * kPitch + (unit ^ line % PERIOD * (8 / PERIOD)) * 16;
  }
};

// Lines that are padded by 16 bytes: 8 lines of one column would otherwise share their banks.
struct PaddedLines {
  static constexpr int kPitch = 144, kPeriod = 1;
  template <int SIDE>
  static constexpr int bytes() {
    return SIDE * kPitch;
  }
  template <int SIDE>
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return line * kPitch + unit * 16;
  }
};

// For wmma fragments of int8, which are one unit wide and have to begin at multiples of 32 bytes: the first
// units of all lines, then the second ones.
struct LinesByUnits {
  static constexpr int kPitch = 16, kPeriod = 1;
  template <int SIDE>
  static constexpr int bytes() {
    return 8 * (SIDE * kPitch + 32);
  }
  template <int SIDE>
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return unit * (SIDE * kPitch + 32) + line * kPitch;
  }
};

// One thread's share of the copies of a tile: a unit of every (THREADS / 8)th line, stage after stage.
template <class Tile_, class T, int THREADS>
class TileCopy {
 public:
  using Tile = Tile_;

 private:
  static constexpr int kAtOnce = THREADS / 8, kBoxLines = Tile::kBoxLines, kUnit = kPer16Bytes<T>;
  static_assert(Tile::kLines % kAtOnce == 0 && (kBoxLines % kAtOnce == 0 || kAtOnce % kBoxLines == 0));
  static_assert(kAtOnce % Tile::Order::kPeriod == 0);

 public:
  static constexpr int kUnits = Tile::kLines / kAtOnce;  // of a stage

  // Copies the tile that begins at side0 of a matrix, from stage `first` on.
  __device__ __forceinline__ TileCopy(const RowsOperand<T>& from, int64_t batch, int side0, int first = 0)
      : operand_(from), side0_(side0), first_(first) {
    const Unit unit;
    from_ = from.data + batch * from.batch_stride +
            (Tile::kAlongK ? side0 + unit.row : first * Tile::kK + unit.row) * from.row_stride +
            (Tile::kAlongK ? first * Tile::kK : side0) + unit.column;
    to_ = Tile::offset(int(threadIdx.x) / 8, int(threadIdx.x) % 8);
  }

  // How many stages lie inside the operand.
  __device__ __forceinline__ int whole_stages() const {
    return operand_.side - side0_ >= Tile::kSide ? operand_.k / Tile::kK - first_ : 0;
  }

  // Copies unit i of the next stage, which lies inside the operand. Units must be copied in order.
  __device__ __forceinline__ void copy(unsigned char* tile, int i) {
    copy_async<16>(tile + to_ + i * kAtOnce * Tile::Order::kPitch, from_);
    from_ += offset(i + 1) - offset(i);
  }
  // Copies the next stage, with zeros outside the operand. `stage` is its index, counted from the first
  // stage.
  __device__ __forceinline__ void copy_edge(unsigned char* tile, int stage) {
    const Unit unit;
    const int side = operand_.side - side0_, k = operand_.k - (first_ + stage) * Tile::kK;
    const int rows = (Tile::kAlongK ? side : k) - unit.row,
              columns = (Tile::kAlongK ? k : side) - unit.column;
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      const int inside = row(i) < rows ? max(0, min(columns - column(i), kUnit)) : 0;
      copy_async<16>(tile + to_ + i * kAtOnce * Tile::Order::kPitch, from_ + offset(i),
                     inside * int(sizeof(T)));
    }
    from_ += offset(kUnits);
  }

 private:
  // The thread's first unit in the operand's rows, and unit i counted from it.
  struct Unit {
    int row = int(threadIdx.x) / 8 % kBoxLines;
    int column = int(threadIdx.x) / 8 / kBoxLines * Tile::kLine + int(threadIdx.x) % 8 * kUnit;
  };
  __device__ __forceinline__ static constexpr int row(int i) { return i * kAtOnce % kBoxLines; }
  __device__ __forceinline__ static constexpr int column(int i) {
    return i * kAtOnce / kBoxLines * Tile::kLine;
  }
  __device__ __forceinline__ int64_t offset(int i) const {
    if (i == kUnits) return Tile::kAlongK ? Tile::kK : Tile::kK * operand_.row_stride;  // the next stage
    return row(i) * operand_.row_stride + column(i);
  }

  const RowsOperand<T>& operand_;
  const T* from_;
  int side0_, first_, to_;
};

// A thread's copies of the two tiles of a stage, A before B. A test whether a unit lies inside the operand
// takes ten instructions. So units are tested only in stages that are not known to lie inside.
template <class A, class B>
struct StageCopy {
  static constexpr int kUnits = A::kUnits + B::kUnits;
  A a;
  B b;
  int stages, whole;  // all stages; those inside the operands, which come first

  __device__ __forceinline__ StageCopy(const A& a, const B& b, int stages)
      : a(a), b(b), stages(stages), whole(min(stages, min(a.whole_stages(), b.whole_stages()))) {}

  // Copies unit i of the next stage, which lies inside the operands.
  __device__ __forceinline__ void copy(unsigned char* to, int i) {
    if (i < A::kUnits)
      a.copy(to, i);
    else if (i < kUnits)
      b.copy(to + A::Tile::kBytes, i - A::kUnits);
  }
  // Copies the next stage, which does not lie inside the operands.
  __device__ __forceinline__ void copy_edge(unsigned char* to, int stage) {
    if (stage >= stages) return;
    a.copy_edge(to, stage);
    b.copy_edge(to + A::Tile::kBytes, stage);
  }
  // The next stage.
  __device__ __forceinline__ void copy_all(unsigned char* to, int stage) {
    if (stage >= whole) return copy_edge(to, stage);
    FASTGEMM_UNROLL
    for (int i = 0; i < kUnits; ++i) copy(to, i);
  }
};

// Multiplies `steps` stages of a ring. A product of two fragments' rows keeps the tensor cores busy for some
// 50 cycles (fp64: 130). Between products a warp loads fragments of the next step of k and asks for copies of
// a later stage, a few instructions at a time. All at once they would fill the queue to shared memory, and
// the products of all warps would wait behind them. (Measured with bf16: all copies at once cost 20 %, all
// loads in half a step 3 %.) But ptxas puts three empty instructions into that queue before a copy that
// follows a load. So mma_sync copies once a step; copies after every product would cost 4 %. A ring of only
// two stages asks for the next one in the first two thirds of the products; it arrives during the last third.
template <int STAGES, int STAGE_BYTES, class Warp, class Copies>
__device__ __forceinline__ void multiply_stages(unsigned char* ring, int steps, Copies& copies, Warp& warp) {
  constexpr int kLast = Warp::kSteps - 1, kRows = Warp::kM;
  constexpr int kTurn = kLast * kRows + Warp::kFirstLoad;      // before this product the next stage is needed
  constexpr int kCopied = STAGES > 2 ? kTurn : kTurn * 2 / 3;  // all copies are requested before this product
  constexpr int kEvery = Warp::kCopyEvery, kAtOnce = (Copies::kUnits * kEvery + kCopied - 1) / kCopied;
  static_assert(Warp::kSteps % 2 == 0, "fragments[0] begins and ends a stage");
  typename Warp::Fragments fragments[2];
  int slot = 0, free_slot = (STAGES - 1) * STAGE_BYTES;  // where stages begin in the ring
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < STAGES - 1; ++i) {
    copies.copy_all(ring + i * STAGE_BYTES, i);
    commit_async_copies();  // an empty group too, so that the count of groups is the count of stages
  }
  wait_async_copies<STAGES - 2>();
  __syncthreads();
  FASTGEMM_UNROLL
  for (int row = 0; row < kRows; ++row) warp.load(fragments[0], ring, 0, row);
  const auto multiply = [&]<bool whole>(int stage, int end) {
    FASTGEMM_NO_UNROLL
    for (; stage < end; ++stage) {
      if constexpr (!whole) copies.copy_edge(ring + free_slot, stage + STAGES - 1);
      FASTGEMM_UNROLL
      for (int product = 0; product < Warp::kSteps * kRows; ++product) {
        const int step = product / kRows, row = product % kRows;
        if (product == kTurn) {
          commit_async_copies();
          free_slot = slot;
          slot = slot == (STAGES - 1) * STAGE_BYTES ? 0 : slot + STAGE_BYTES;
          wait_async_copies<STAGES - 2>();
          __syncthreads();  // the next stage is there for all, and this one has been read by all
        }
        warp.load(fragments[(step + 1) % 2], ring + slot, (step + 1) % Warp::kSteps, row);
        warp.multiply(fragments[step % 2], row);
        if constexpr (whole) {
          if (product < kTurn && product % kEvery == 0) {
            FASTGEMM_UNROLL
            for (int i = 0; i < kAtOnce; ++i) copies.copy(ring + free_slot, product / kEvery * kAtOnce + i);
          }
        }
      }
    }
  };
  const int whole = min(max(copies.whole - (STAGES - 1), 0), steps);
  multiply.template operator()<true>(0, whole);
  multiply.template operator()<false>(whole, steps);
  wait_async_copies<0>();
  __syncthreads();  // the ring is free
}

}  // namespace fastgemm::FASTGEMM_TARGET
