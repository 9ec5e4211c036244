// What the portable tensor-core rungs share: operand tiles that cp.async brings into shared memory, the ring
// of stages that they form, and the way of a warp's sums to C.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/fragment.cuh"
#include "cuda/gemm/level5_warp_tile.cuh"
#include "cuda/gemm/level6_operand_rows.cuh"
#include "cuda/gemm/vector_tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Tile (SIDE, 128 bytes of k) of an operand, in lines of 128 bytes: line s holds the k of one position of the
// side or, where the operand runs along the side, boxes of kK lines stand one behind the other, line k of a
// box holding 128 bytes of the side. Order says where in shared memory a line's units of 16 bytes lie:
// offset<SIDE>(line, unit), kPitch bytes after that of the line before, or after kPeriod lines kPeriod times
// that.
template <class T, bool along_k_, int SIDE, class Order_>
struct LineTile {
  using Order = Order_;
  static constexpr bool kAlongK = along_k_;
  static constexpr int kLine = 128 / int(sizeof(T)), kK = kLine, kSide = SIDE;  // elements
  static constexpr int kLines = SIDE;  // SIDE * kK elements, in either direction
  static constexpr int kBoxLines = kAlongK ? SIDE : kK;
  static constexpr int kBytes = Order::template bytes<SIDE>();
  static_assert(SIDE % kLine == 0, "whole boxes");

  // In bytes.
  __device__ __forceinline__ static constexpr int offset(int line, int unit) {
    return Order::template offset<SIDE>(line, unit);
  }
};

// One thread's share of the copies of a tile: a unit of every (THREADS / 8)th line, stage after stage.
template <class Tile, class T, int THREADS>
class TileCopy {
  static constexpr int kAtOnce = THREADS / 8, kLines = Tile::kLines, kBoxLines = Tile::kBoxLines;
  static constexpr int kUnit = kPer16Bytes<T>;
  static_assert(kLines % kAtOnce == 0 && (kBoxLines % kAtOnce == 0 || kAtOnce % kBoxLines == 0));
  static_assert(kAtOnce % Tile::Order::kPeriod == 0);

 public:
  __device__ __forceinline__ TileCopy(const RowsOperand<T>& from, int64_t batch, int side0)
      : row_stride_(from.row_stride), step_(Tile::kAlongK ? Tile::kK : Tile::kK * from.row_stride) {
    const int line = int(threadIdx.x) / 8, unit = int(threadIdx.x) % 8;
    const int row = line % kBoxLines, column = line / kBoxLines * Tile::kLine + unit * kUnit;
    const int side = from.side - side0;
    whole_stages_ = side >= Tile::kSide ? from.k / Tile::kK : 0;
    rows_ = (Tile::kAlongK ? side : from.k) - row;
    columns_ = (Tile::kAlongK ? from.k : side) - column;
    from_ = from.data + batch * from.batch_stride + row * row_stride_ + column +
            (Tile::kAlongK ? side0 * row_stride_ : side0);
    to_ = Tile::offset(line, unit);
  }

  // The next stage; zeros outside the operand, also past the last stage. Whole tiles know that they are: to
  // find out, unit by unit, takes eight instructions each.
  __device__ __forceinline__ void copy(unsigned char* tile) {
    if (--whole_stages_ >= 0)
      copy_units(tile, [](int, int) { return 16; });
    else
      copy_units(tile, [&](int row, int column) {
        return row < rows_ ? max(0, min(columns_ - column, kUnit)) * int(sizeof(T)) : 0;
      });
    from_ += step_;
    (Tile::kAlongK ? columns_ : rows_) -= Tile::kK;
  }

 private:
  template <class Valid>
  __device__ __forceinline__ void copy_units(unsigned char* tile, Valid&& valid) const {
    FASTGEMM_UNROLL
    for (int line = 0; line < kLines; line += kAtOnce) {
      const int row = line % kBoxLines, column = line / kBoxLines * Tile::kLine;
      copy_async<16>(tile + to_ + line * Tile::Order::kPitch, from_ + row * row_stride_ + column,
                     valid(row, column));
    }
  }

  const T* from_;
  int64_t row_stride_, step_;
  int rows_, columns_;  // of the operand, from the thread's first unit on
  int whole_stages_;    // to come
  int to_;
};

// Multiplies `steps` stages of a ring, of which STAGES - 1 are on their way. A warp loads the fragments of
// the next step of k before it multiplies those of one, and does everything else half-way through a product,
// when the tensor cores have work.
template <int STAGES, int STAGE_BYTES, class Warp, class Copy>
__device__ __forceinline__ void multiply_stages(unsigned char* ring, int steps, Copy&& copy, Warp& warp) {
  constexpr int kLast = Warp::kSteps - 1;
  static_assert(Warp::kSteps % 2 == 0, "fragments[0] begins and ends a stage");
  typename Warp::Fragments fragments[2];
  int slot = 0, free_slot = STAGES - 1;
  for (int i = 0; i < STAGES - 1; ++i) {
    copy(ring + i * STAGE_BYTES);
    commit_async_copies();
  }
  wait_async_copies<STAGES - 2>();
  __syncthreads();
  warp.load(fragments[0], ring, 0);
  FASTGEMM_NO_UNROLL
  for (int stage = 0; stage < steps; ++stage) {
    FASTGEMM_UNROLL
    for (int step = 0; step < kLast; ++step) {
      warp.load(fragments[(step + 1) % 2], ring + slot * STAGE_BYTES, step + 1);
      warp.template multiply<0>(fragments[step % 2]);
      if (step == 0) {
        copy(ring + free_slot * STAGE_BYTES);
        commit_async_copies();
      }
      warp.template multiply<1>(fragments[step % 2]);
    }
    warp.template multiply<0>(fragments[1]);
    free_slot = slot;
    if (++slot == STAGES) slot = 0;
    wait_async_copies<STAGES - 2>();
    __syncthreads();  // the next stage is there for all, and this one has been read by all
    warp.load(fragments[0], ring + slot * STAGE_BYTES, 0);
    warp.template multiply<1>(fragments[1]);
  }
  wait_async_copies<0>();
  __syncthreads();  // the ring is free
}

// A warp's sums (ROWS, COLUMNS) on their way through shared memory, so that C is read and written 16 bytes
// at a time along its rows.
template <class Acc, int ROWS, int COLUMNS>
struct WarpSlab {
  static constexpr int kPitch = COLUMNS + 32 / int(sizeof(Acc));  // rows 8 banks apart: no conflicts
  alignas(32) Acc sums[ROWS * kPitch];

  // Tiles of mma, (16, 8) each.
  __device__ __forceinline__ void put(const Acc (&sum)[ROWS / 16][COLUMNS / 8][4]) {
    const Position p = MmaLayout<float>::c(int(threadIdx.x) % 32, 0);  // the same for all types
    FASTGEMM_UNROLL
    for (int i = 0; i < ROWS / 16; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < COLUMNS / 8; ++j) {
        FASTGEMM_UNROLL
        for (int half = 0; half < 2; ++half)
          store_vector(&sums[(p.row + 16 * i + 8 * half) * kPitch + p.column + 8 * j],
                       Vector<Acc, 2>{{sum[i][j][2 * half], sum[i][j][2 * half + 1]}});
      }
    }
  }

  template <class T>
  __device__ __forceinline__ void store(const Gemm<T>& g, ResultVectors vectors, int64_t row0,
                                        int64_t column0) const {
    if constexpr (Result<T>::kMayBeWide) {
      if (g.result.wide) return store_as<float>(g, vectors, row0, column0);
    }
    store_as<typename Result<T>::Narrow>(g, vectors, row0, column0);
  }

 private:
  template <class Out, class T>
  __device__ __forceinline__ void store_as(const Gemm<T>& g, ResultVectors vectors, int64_t row0,
                                           int64_t column0) const {
    constexpr int N = kPer16Bytes<Out>, kAcross = COLUMNS / N;
    FASTGEMM_NO_UNROLL
    for (int i = int(threadIdx.x) % 32; i < ROWS * kAcross; i += 32) {
      const int row = i / kAcross, column = i % kAcross * N;
      const int valid = row0 + row < g.m ? inside(g.n, column0 + column, N) : 0;
      if (valid > 0)
        store_row_as<Out, N>(g.result, vectors, row0 + row, column0 + column, &sums[row * kPitch + column],
                             valid);
    }
  }
};

// What the kernels are given.
template <class T>
struct TileArguments {
  Gemm<T> gemm;
  RowsOperands<T> operands;
  ResultVectors vectors;
  int tiles_m, tiles_n, steps;
};

// Extents that do not fit 32-bit coordinates are left to level 5.
template <class T>
bool fits_tiles(const Gemm<T>& g) {
  return std::max({g.m, g.n, g.k}) <= int64_t{1} << 30;
}

template <Takes takes, class T>
TileArguments<T> tile_arguments(const Gemm<T>& g, int batch, int bm, int bn, int bk, Context& context) {
  tile_grid(g.m, g.n, bm, bn, batch);
  return {g,
          rows_operands<takes>(g, batch, context),
          result_vectors(g.result),
          int(ceil_div(g.m, bm)),
          int(ceil_div(g.n, bn)),
          int(ceil_div(g.k, bk))};
}

// A block's tile of C by mma: shapes, warps and their products as K has them.
template <class K, class T>
__device__ __forceinline__ void multiply_block(const TileArguments<T>& g) {
  using C = typename K::Config;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const Place place(int(blockIdx.x), g.tiles_m, g.tiles_n);
  const int row0 = place.row * C::BM, column0 = place.column * C::BN;
  TileCopy<typename K::TileA, T, C::kThreads> a(g.operands.a, blockIdx.z, row0);
  TileCopy<typename K::TileB, T, C::kThreads> b(g.operands.b, blockIdx.z, column0);
  const auto copy = [&](unsigned char* stage) {
    a.copy(stage);
    b.copy(stage + K::TileA::kBytes);
  };
  const int index = warp_index(), row = index % C::kWarpsM * C::WM, column = index / C::kWarpsM * C::WN;
  typename K::Warp warp(row, column);
  multiply_stages<C::kStages, K::kStageBytes>(shared->ring[0], g.steps, copy, warp);
  auto& slab = shared->slabs[index];
  slab.put(warp.sum);
  __syncwarp();
  slab.store(g.gemm.at_batch(blockIdx.z), g.vectors, int64_t(row0) + row, int64_t(column0) + column);
}

// Block tile, warp tile, stages of 128 bytes of k, blocks on a multiprocessor.
template <int BM_, int BN_, int WM_, int WN_, int STAGES_, int BLOCKS_>
struct TileConfig {
  static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, kStages = STAGES_, kBlocks = BLOCKS_;
  static constexpr int kWarpsM = BM / WM, kWarps = kWarpsM * (BN / WN), kThreads = 32 * kWarps;
};

template <class T>
dim3 grid_of(const TileArguments<T>& arguments, int batch) {
  return dim3(unsigned(arguments.tiles_m * arguments.tiles_n), 1, unsigned(batch));
}

}  // namespace fastgemm::FASTGEMM_TARGET
