// The main loop of `skinny` on GPUs without wgmma. Contract: multiply_shares() computes a block's share of
// the product by mma.sync, with tiles of the same size and sums in the same registers as the wgmma loop.
//
//   8 warps  ask for a stage of --> ring of stages, 128 bytes of k ------> 16 rows each --> slab --> C
//            both operands          | large (128) | skinny (COLUMNS) |     by mma.sync  --> workspace
//
//   - All threads copy by cp.async, which needs no registers: at least 48 KB of the large operand are in
//     flight while a stage is multiplied. The ring fits into the 99 KB that a block may have on every GPU.
//   - Operands whose rows begin at any address are loaded to registers: the next stage while this one is
//     multiplied.
//   - ldmatrix loads fragments from swizzled lines, and transposes them where the operand runs along m or n;
//     bytes are put in order afterwards (parts/sources/fragments.cuh).
//   - A finished tile goes to C through the stage that was read last, 32 columns at a time.
#pragma once

#include "cuda/gemm/fast/skinny_sums.cuh"
#include "cuda/gemm/parts/sources/fragments.cuh"
#include "cuda/gemm/parts/sources/unaligned_tile.cuh"
#include "cuda/gemm/parts/warp_product.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The ring for COLUMNS columns of the skinny operand.
template <class S, int COLUMNS>
struct SkinnyRing {
  static constexpr int kLargeBytes = S::kM * 128, kStageBytes = kLargeBytes + COLUMNS * 128;
  static constexpr int kStages = COLUMNS == 16 ? 5 : 4;
  unsigned char stage[kStages][kStageBytes];
};
template <class S>
union SkinnyRings {
  SkinnyRing<S, 16> of_16;
  SkinnyRing<S, 32> of_32;
  SkinnyRing<S, 64> of_64;
};

// Iterates over the stages of a block, tile by tile.
template <class S, class T>
class SkinnyWalk {
 public:
  __device__ __forceinline__ explicit SkinnyWalk(const SkinnyArguments<T>& g) : g_(g) {
    const int begin = g.shares.begin(int(blockIdx.x));
    left_ = g.shares.count(int(blockIdx.x));
    tile_ = begin / g.shares.steps, step_ = begin % g.shares.steps;
  }
  // Calls begin_tile(place, step) where the next stage is the block's first one of a tile, then body(). Does
  // nothing after the last stage.
  template <class BeginTile, class Body>
  __device__ __forceinline__ void next(BeginTile&& begin_tile, Body&& body) {
    if (left_ == 0) return;
    if (begins_) begin_tile(SkinnyPlace<S>(tile_, g_), step_);
    body();
    --left_, ++step_;
    begins_ = step_ == g_.shares.steps;
    if (begins_) step_ = 0, tile_ += g_.shares.apart(int(gridDim.x));
  }

 private:
  const SkinnyArguments<T>& g_;
  int left_, tile_, step_;
  bool begins_ = true;
};

// Copies a thread's units of an operand whose rows begin at multiples of 16 bytes, one stage of the ring
// after another, with zeros outside the operand. The address that it writes to is a register that advances
// around the ring; LineCopy (parts/line_copy.cuh) says why.
template <class Tile, class T, int THREADS, class Ring, bool evict_first>
class AsyncUnits {
  static constexpr int kAtOnce = THREADS / 8, kUnit = kPer16Bytes<T>, kBoxLines = Tile::kBoxLines;
  static constexpr int kUnits = (Tile::kLines + kAtOnce - 1) / kAtOnce;
  static_assert(kBoxLines % kAtOnce == 0 || kUnits == 1);

 public:
  // `ring` is the tile's place in the ring's first stage.
  __device__ __forceinline__ AsyncUnits(const BoxOperand<T>& from, unsigned char* ring)
      : operand_(from), to_(ring + Tile::offset(line(), unit())) {}

  // Makes stage `step` of the tile at side0 the next one.
  __device__ __forceinline__ void begin(int side0, int step, int batch) {
    const int side = int(operand_.side), k0 = step * Tile::kK;
    row_ = (Tile::kAlongK ? side0 : k0) + line();
    column_ = (Tile::kAlongK ? k0 : side0) + unit() * kUnit;
    from_ = operand_.data + batch * operand_.batch_stride + row_ * operand_.row_stride + column_;
    whole_ = side - side0 >= Tile::kSide ? int(operand_.k) / Tile::kK - step : 0;
  }
  __device__ __forceinline__ void copy() {
    if (Tile::kLines >= kAtOnce || line() < Tile::kLines) {
      if (whole_ > 0)
        copy_units([](int) { return 16; });
      else
        copy_edge();
    }
    --whole_;
    (Tile::kAlongK ? column_ : row_) += Tile::kK;
    from_ += Tile::kAlongK ? Tile::kK : Tile::kK * operand_.row_stride;
    to_ += Ring::kStageBytes;
    if (++stage_ == Ring::kStages) to_ -= Ring::kStages * Ring::kStageBytes, stage_ = 0;
  }

 private:
  __device__ __forceinline__ static int line() { return int(threadIdx.x) / 8; }
  __device__ __forceinline__ static int unit() { return int(threadIdx.x) % 8; }
  // Where unit i lies, relative to the thread's first unit.
  __device__ __forceinline__ static constexpr int row(int i) { return i * kAtOnce % kBoxLines; }
  __device__ __forceinline__ static constexpr int column(int i) {
    return i * kAtOnce / kBoxLines * Tile::kLine;
  }

  __device__ __forceinline__ void copy_edge() {
    const int rows = int(Tile::kAlongK ? operand_.side : operand_.k) - row_;
    const int columns = int(Tile::kAlongK ? operand_.k : operand_.side) - column_;
    copy_units(
        [&](int i) { return row(i) < rows ? max(0, min(columns - column(i), kUnit)) * int(sizeof(T)) : 0; });
  }
  template <class Valid>
  __device__ __forceinline__ void copy_units(Valid&& valid) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kUnits; ++i) {
      unsigned char* const to = to_ + i * kAtOnce * 128;
      const T* const from = from_ + row(i) * operand_.row_stride + column(i);
      if constexpr (evict_first)
        copy_async_evict_first(to, from, valid(i));
      else
        copy_async<16>(to, from, valid(i));
    }
  }

  const BoxOperand<T>& operand_;
  unsigned char* to_;
  const T* from_;
  int row_, column_, whole_, stage_ = 0;
};

// The two ways by which stages reach the ring. next() waits until all threads may read the next stage, and
// returns where it begins.

template <class S, class T, Major large_major, Major skinny_major, int COLUMNS>
class AsyncStages {
  using Ring = SkinnyRing<S, COLUMNS>;

 public:
  using Large = LineTile<T, large_major == Major::k, S::kM, SwizzledLines<8>>;
  using Skinny = LineTile<T, skinny_major == Major::k, COLUMNS, SwizzledLines<8>>;

  __device__ __forceinline__ AsyncStages(const SkinnyArguments<T>& g, unsigned char* ring)
      : walk_(g), large_(g.large, ring), skinny_(g.skinny, ring + Large::kBytes) {
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < Ring::kStages - 1; ++i) request();
  }
  __device__ __forceinline__ int next() {
    wait_async_copies<Ring::kStages - 2>();
    __syncthreads();  // all may read this stage, and all have read the one before
    request();
    const int now = at_;
    at_ = at_ == (Ring::kStages - 1) * Ring::kStageBytes ? 0 : at_ + Ring::kStageBytes;
    return now;
  }

 private:
  __device__ __forceinline__ void request() {
    walk_.next(
        [&](const SkinnyPlace<S>& place, int step) {
          large_.begin(place.row, step, place.batch);
          skinny_.begin(place.column, step, place.batch);
        },
        [&] { large_.copy(), skinny_.copy(); });
    commit_async_copies();  // also an empty group, so that groups are counted like stages
  }

  SkinnyWalk<S, T> walk_;
  AsyncUnits<Large, T, S::kConsumerThreads, Ring, true> large_;
  AsyncUnits<Skinny, T, S::kConsumerThreads, Ring, false> skinny_;
  int at_ = 0;
};

// For rows that begin at any address. Two stages in shared memory are used in turn, while registers hold the
// stage after them.
template <class S, class T, Major large_major, Major skinny_major>
class UnitStages {
 public:
  using Large = LineTile<T, large_major == Major::k, S::kM, SwizzledLines<8>>;
  using Skinny = LineTile<T, skinny_major == Major::k, S::kN, SwizzledLines<8>>;

  __device__ __forceinline__ UnitStages(const SkinnyArguments<T>& g, unsigned char* ring)
      : g_(g), ring_(ring), walk_(g), large_(int(threadIdx.x)), skinny_(int(threadIdx.x)) {
    request();
  }
  __device__ __forceinline__ int next() {
    const int now = at_;
    large_.store(ring_ + now);
    skinny_.store(ring_ + now + Large::kBytes);
    request();
    __syncthreads();  // all may read this stage, and all have read the one before
    at_ = kStageBytes - now;
    return now;
  }

 private:
  static constexpr int kStageBytes = Large::kBytes + Skinny::kBytes;
  static_assert(2 * kStageBytes <= int(sizeof(SkinnyRings<S>)));

  __device__ __forceinline__ void request() {
    walk_.next([&](const SkinnyPlace<S>& place, int step) { place_ = place, step_ = step; },
               [&] {
                 large_.load(g_.large, place_.row, step_ * Large::kK, place_.batch);
                 skinny_.load(g_.skinny, place_.column, step_ * Skinny::kK, place_.batch);
                 ++step_;
               });
  }

  const SkinnyArguments<T>& g_;
  unsigned char* ring_;
  SkinnyWalk<S, T> walk_;
  SkinnyPlace<S> place_{0, g_};
  UnitCopy<T, OperandTile<T, large_major, S::kM>, S::kConsumerThreads> large_;
  UnitCopy<T, OperandTile<T, skinny_major, S::kN>, S::kConsumerThreads> skinny_;
  int step_ = 0, at_ = 0;
};

// A warp's products of 16 rows of the large operand and COLUMNS columns.
template <class T, class Large, class Skinny, int COLUMNS>
class SkinnyProducts {
  static constexpr bool kOrdersBytes = !Large::kAlongK && sizeof(T) == 1;
  struct InOrderReader : FragmentReader<Which::a, Large> {
    __device__ __forceinline__ explicit InOrderReader(const unsigned char*, int warp, int)
        : FragmentReader<Which::a, Large>(kSlabRows * warp) {}
  };

 public:
  using Rows = std::conditional_t<kOrdersBytes, Fragments<T>, InOrder>;

  __device__ __forceinline__ SkinnyProducts(const unsigned char* ring, int warp)
      : ring_(ring), large_(ring, warp, int(threadIdx.x) % 32), skinny_(0) {}

  // Adds the products of the stage that begins `at` bytes into the ring.
  __device__ __forceinline__ void add(Accumulator<T> (&sum)[COLUMNS / 2], int at) const {
    auto& sums = reinterpret_cast<Accumulator<T>(&)[COLUMNS / 8][4]>(sum);
    FASTGEMM_UNROLL
    for (int step = 0; step < 4; ++step) {
      uint32_t a[4];
      if constexpr (kOrdersBytes)
        large_.load(a, at, step);
      else
        large_.load(a, ring_ + at, 0, step);
      FASTGEMM_UNROLL
      for (int j = 0; j < COLUMNS / 16; ++j) {
        uint32_t b[4];
        skinny_.load(b, ring_ + at + Large::kBytes, j, step);
        mma<T>(sums[2 * j], a, b[0], b[1]);
        mma<T>(sums[2 * j + 1], a, b[2], b[3]);
      }
    }
  }

 private:
  const unsigned char* ring_;
  std::conditional_t<kOrdersBytes, Fragments<T>, InOrderReader> large_;
  FragmentReader<Which::b, Skinny> skinny_;
};

template <class S, int COLUMNS, class Stages, class T>
__device__ __forceinline__ void multiply_share(const SkinnyArguments<T>& g, unsigned char* ring) {
  using Products = SkinnyProducts<T, typename Stages::Large, typename Stages::Skinny, COLUMNS>;
  using Rows = typename Products::Rows;
  constexpr int kPiece = COLUMNS < 32 ? COLUMNS : 32;  // columns stored at a time
  static_assert(S::kConsumerThreads / 32 * int(sizeof(Slab<kPiece>)) <= Stages::Large::kBytes);
  const int warp = warp_index();
  Stages stages(g, ring);
  const Products products(ring, warp);
  g.shares.each_part(int(blockIdx.x), int(gridDim.x), [&](const Part& part) {
    Accumulator<T> sum[COLUMNS / 2] = {};
    int at = 0;
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      at = stages.next();
      products.add(sum, at);
    }
    SkinnyPlace<S> place(part.tile, g);
    if (part.first > 0 || part.end < g.shares.steps) return hand_over(g, sum, part, place);
    __syncthreads();  // all have read the stage
    auto* const slab = reinterpret_cast<uint32_t*>(ring + at) + warp * (kPiece * kSlabRows);
    FASTGEMM_UNROLL
    for (int first = 0; first < COLUMNS; first += kPiece, place.column += kPiece) {
      if (place.column >= g.skinny.side) break;
      Accumulator<T> piece[kPiece / 2];
      FASTGEMM_UNROLL
      for (int i = 0; i < kPiece / 2; ++i) piece[i] = sum[first / 2 + i];
      store_tile<Rows>(g, slab, piece, place, warp);
    }
  });
}

template <class S, Major large_major, Major skinny_major, class T>
__device__ __forceinline__ void multiply_shares(const SkinnyArguments<T>& g, unsigned char* ring) {
  const auto by_units = [&]<int COLUMNS>() {
    multiply_share<S, COLUMNS, UnitStages<S, T, large_major, skinny_major>>(g, ring);
  };
  const auto copied = [&]<int COLUMNS>() {
    multiply_share<S, COLUMNS, AsyncStages<S, T, large_major, skinny_major, COLUMNS>>(g, ring);
  };
  if (g.by_units)
    return g.skinny_rows == 16 ? by_units.template operator()<16>() : by_units.template operator()<64>();
  if constexpr (skinny_major == Major::k) {
    if (g.skinny_rows == 16) return copied.template operator()<16>();
    if (g.skinny_rows == 32) return copied.template operator()<32>();
  }
  copied.template operator()<64>();
}

}  // namespace fastgemm::FASTGEMM_TARGET
