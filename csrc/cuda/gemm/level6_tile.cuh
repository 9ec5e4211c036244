// What the portable tensor-core rungs share: operand tiles that cp.async brings into shared memory, the ring
// of stages that they form, and the way of a warp's sums to C.
#pragma once

#include "cuda/device/async_copy.cuh"
#include "cuda/device/fragment.cuh"
#include "cuda/gemm/level5_stream_k.cuh"
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
  static constexpr bool kAlongK = along_k_, kTf32 = std::is_same_v<T, float>;
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

  // From stage `first` of the tile at side0 of a matrix.
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

  // Copies unit i of the next stage, which lies inside; the units one after the other.
  __device__ __forceinline__ void copy(unsigned char* tile, int i) {
    copy_async<16>(tile + to_ + i * kAtOnce * Tile::Order::kPitch, from_);
    from_ += offset(i + 1) - offset(i);
  }
  // Copies the next stage, which is the one of this index after the first, zeros outside the operand.
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

// A thread's copies of the two tiles of a stage, A before B. To find out, unit by unit, what is inside takes
// ten instructions each, so stages that lie inside the operands are told from those that do not.
template <class A, class B>
struct StageCopy {
  static constexpr int kUnits = A::kUnits + B::kUnits;
  A a;
  B b;
  int stages, whole;  // all of them; those inside, which come first

  __device__ __forceinline__ StageCopy(const A& a, const B& b, int stages)
      : a(a), b(b), stages(stages), whole(min(stages, min(a.whole_stages(), b.whole_stages()))) {}

  // A unit of the next stage, if that is a whole one.
  __device__ __forceinline__ void copy(unsigned char* to, int i) {
    if (i < A::kUnits)
      a.copy(to, i);
    else if (i < kUnits)
      b.copy(to + A::Tile::kBytes, i - A::kUnits);
  }
  // The next stage, if it is not.
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
// a later stage, a few instructions at a time: all at once they fill the queue to shared memory, behind which
// the products of all warps wait (copies in one go cost 20 %, loads in half of a step 3 %: bf16, measured).
// But copies in several places cost, too: ptxas puts three empty loads before a copy that follows a load.
template <int STAGES, int STAGE_BYTES, class Warp, class Copies>
__device__ __forceinline__ void multiply_stages(unsigned char* ring, int steps, Copies& copies, Warp& warp) {
  constexpr int kLast = Warp::kSteps - 1, kRows = Warp::kM;
  constexpr int kTurn =
      kLast * kRows + Warp::kFirstLoad;  // the product before which the next stage is needed
  constexpr int kEvery = Warp::kCopyEvery, kAtOnce = (Copies::kUnits * kEvery + kTurn - 1) / kTurn;
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
  int tiles_m, tiles_n, blocks;
  StreamK work;              // the tiles of all matrices, shared among persistent blocks
  Accumulator<T>* partials;  // a block's sums of the tile that it could not finish
  uint32_t* flags;           // 1: they are there
};

// Extents that do not fit 32-bit coordinates are left to level 5.
template <class T>
bool fits_tiles(const Gemm<T>& g) {
  return std::max({g.m, g.n, g.k}) <= int64_t{1} << 30;
}

// Block tile, warp tile, stages of 128 bytes of k, blocks on a multiprocessor.
template <int BM_, int BN_, int WM_, int WN_, int STAGES_, int BLOCKS_>
struct TileConfig {
  static constexpr int BM = BM_, BN = BN_, WM = WM_, WN = WN_, kStages = STAGES_, kBlocks = BLOCKS_;
  static constexpr int kWarpsM = BM / WM, kWarps = kWarpsM * (BN / WN), kThreads = 32 * kWarps;
};

static __global__ void clear_flags_kernel(uint32_t* flags, int count) {
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) flags[i] = 0;
}

// Arguments for tiles (bm, bn) and stages of bk, where at_a_time blocks run at a time.
template <Takes takes, class T>
TileArguments<T> tile_arguments(const Gemm<T>& g, int batch, int bm, int bn, int bk, int at_a_time,
                                Context& context) {
  TileArguments<T> t{.gemm = g,
                     .operands = rows_operands<takes>(g, batch, context),
                     .vectors = result_vectors(g.result),
                     .tiles_m = int(ceil_div(g.m, bm)),
                     .tiles_n = int(ceil_div(g.n, bn))};
  const int64_t tiles = int64_t{tile_grid(g.m, g.n, bm, bn, batch).grid.x} * batch;
  t.blocks = int(std::min<int64_t>(tiles, at_a_time));
  t.work = plan_stream_k(tiles, int(ceil_div(g.k, bk)), t.blocks);
  if (t.work.whole_tiles == tiles) return t;
  t.partials = static_cast<Accumulator<T>*>(
      context.allocate(sizeof(Accumulator<T>) * size_t(t.blocks) * size_t(bm) * size_t(bn)));
  t.flags = static_cast<uint32_t*>(context.allocate(sizeof(uint32_t) * size_t(t.blocks)));
  launch<clear_flags_kernel>("clear_flags", {dim3(1), dim3(256)}, context)(t.flags, t.blocks);
  return t;
}

// Sums of a tile that another block finishes, as [register][thread]: every access is a full line.
template <class K, class T, class Sum>
__device__ __forceinline__ void hand_over(const TileArguments<T>& g, const Sum& sum) {
  using C = typename K::Config;
  Accumulator<T>* to = g.partials + int64_t(blockIdx.x) * C::BM * C::BN + threadIdx.x;
  FASTGEMM_UNROLL
  for (int i = 0; i < C::WM / 16; ++i) {
    FASTGEMM_UNROLL
    for (int j = 0; j < C::WN / 8; ++j) {
      FASTGEMM_UNROLL
      for (int r = 0; r < 4; ++r) to[((i * C::WN / 8 + j) * 4 + r) * C::kThreads] = sum[i][j][r];
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) store_release(&g.flags[blockIdx.x], 1);
}
template <class K, class T, class Sum>
__device__ __forceinline__ void collect(const TileArguments<T>& g, Sum& sum, const Part& part) {
  using C = typename K::Config;
  const int64_t tile_begin = int64_t(part.tile - g.work.whole_tiles) * g.work.steps;
  int block = int(blockIdx.x);
  do {
    --block;
    while (__any_sync(0xffffffffu, load_acquire(&g.flags[block]) == 0)) spin_wait();
    const Accumulator<T>* from = g.partials + int64_t(block) * C::BM * C::BN + threadIdx.x;
    FASTGEMM_UNROLL
    for (int i = 0; i < C::WM / 16; ++i) {
      FASTGEMM_UNROLL
      for (int j = 0; j < C::WN / 8; ++j) {
        FASTGEMM_UNROLL
        for (int r = 0; r < 4; ++r) sum[i][j][r] += from[((i * C::WN / 8 + j) * 4 + r) * C::kThreads];
      }
    }
  } while (g.work.begin(block) > tile_begin);
}

// Part i of a block, as Parts counts them, without state that would cost registers in the main loop; false
// after the last one.
__device__ __forceinline__ bool part_of(const StreamK& plan, int i, Part& part) {
  const int block = int(blockIdx.x), blocks = int(gridDim.x), whole = block + i * blocks;
  if (whole < plan.whole_tiles) {
    part = {whole, 0, plan.steps};
    return true;
  }
  const int64_t begin = plan.begin(block), end = plan.begin(block + 1);
  if (begin == end) return false;  // no share
  const int last = int((end - 1) / plan.steps), tile = last - (i - plan.whole_tiles / blocks);
  if (tile < int(begin / plan.steps)) return false;
  part = {plan.whole_tiles + tile, int(max(begin - int64_t(tile) * plan.steps, int64_t(0))),
          tile == last ? int((end - 1) % plan.steps) + 1 : plan.steps};
  return true;
}

// A block's parts of C by mma: shapes, warps and their products as K has them.
template <class K, class T>
__device__ __forceinline__ void multiply_parts(const TileArguments<T>& g) {
  using C = typename K::Config;
  FASTGEMM_DYNAMIC_SHARED(typename K::Shared, shared);
  const int index = warp_index(), row = index % C::kWarpsM * C::WM, column = index / C::kWarpsM * C::WN;
  Part part;
  for (int i = 0; part_of(g.work, i, part); ++i) {
    const Place place(part.tile, g.tiles_m, g.tiles_n);
    const int row0 = place.row * C::BM, column0 = place.column * C::BN;
    using CopyA = TileCopy<typename K::TileA, T, C::kThreads>;
    using CopyB = TileCopy<typename K::TileB, T, C::kThreads>;
    const int steps = part.end - part.first;
    // One stage more than is multiplied, for it is read.
    StageCopy copies(CopyA(g.operands.a, place.batch, row0, part.first),
                     CopyB(g.operands.b, place.batch, column0, part.first), steps + 1);
    typename K::Warp warp(row, column);
    multiply_stages<C::kStages, K::kStageBytes>(shared->ring[0], steps, copies, warp);
    if (part.end != g.work.steps) {
      hand_over<K>(g, warp.sum);
      continue;
    }
    if (part.first != 0) collect<K>(g, warp.sum, part);
    auto& slab = shared->slabs[index];
    slab.put(warp.sum);
    __syncwarp();
    slab.store(g.gemm.at_batch(place.batch), g.vectors, int64_t(row0) + row, int64_t(column0) + column);
    __syncthreads();  // the slabs make room for the ring
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
