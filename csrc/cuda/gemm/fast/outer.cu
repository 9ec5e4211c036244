// Level 6 for a short k and a large C: a sum of a few outer products, which the writes of C limit. Kernels
// with square tiles are far from this limit when rows of C begin at any address. There each row of a tile
// begins and ends inside a sector (32 bytes), and memory is slow at writing a part of a sector. Here
//   - a tile has 512 bytes or 1 KB of each row, and its rows are stored in whole sectors. A sector that two
//     tiles share is stored by the tile in which it begins, so tiles overlap by one sector:
//
//       row of C    .........|.......|.......|.......|........     | begins a sector
//       tile 0      <------------ computed ------------>
//                   <---- stored ------------>
//       tile 1                           <------------ computed ...
//                                            <---- stored ...
//
//   - a lane stores 16 bytes of 16-bit elements, because rows lie in shared memory as they will lie in C,
//     modulo 16 bytes. Larger elements are stored one by one;
//   - a block goes down the rows of C. It has its rows of A in shared memory, and a warp has its columns of
//     B in registers, straight from global memory at any stride (fast/direct.cuh).
// All this is for a k of one step. A longer k is multiplied step by step, which is right but slow.
#include "cuda/gemm/fast/direct.cuh"
#include "cuda/gemm/predict/plans.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kSectorBytes = 32;

// A step of fragments has `values` values of each slot, 2 or 4.
template <class T, class Stored, int values>
struct Config {
  using Type = T;
  using Sum = typename DirectType<T>::Sum;
  using Out = Stored;
  static constexpr int kValues = values, kDepth = plans::direct_depth(sizeof(T), values);
  static constexpr int kRows = plans::kOuterRows, kColumns = plans::outer_columns(sizeof(Out), values);
  static constexpr int kWarps = plans::outer_warps(sizeof(Out), values), kThreads = 32 * kWarps;
  static constexpr int kWarpColumns = kColumns / kWarps, kTiles = kWarpColumns / 8;
  static constexpr int kBlocks = plans::outer_blocks(sizeof(Out), values);
  static constexpr int kMostChunks = plans::outer_most_chunks(sizeof(Out));
  // No conflicts when fragments are written, or read: 4 words are added to each row.
  static constexpr int kPitch = kColumns + 8, kPitchA = kDepth + 4 * DirectType<T>::kPacked;
};

template <class C>
struct OuterArguments {
  using T = typename C::Type;
  Side<T> a;
  DirectOperand<T, int64_t> b;
  int k, steps;
  int strips;   // tiles side by side
  int overlap;  // columns that neighbouring tiles share: one sector, or 0
  int chunks;   // of rows, for each block; 1 if there are several steps
  bool plain;   // alpha is 1 and beta is 0
  Result<T> result;
};

template <class C>
struct Buffers {
  alignas(16) typename C::Out tiles[2][C::kRows * C::kPitch + 8];
  alignas(16) typename C::Type a[C::kMostChunks * C::kRows * C::kPitchA];
};

// How many elements before the next multiple of `bytes` this one lies.
template <int bytes, class Out>
__device__ __forceinline__ int before_next(const Out* x) {
  return int((0 - reinterpret_cast<uintptr_t>(x)) % bytes) / int(sizeof(Out));
}

// Rows of 16-bit types lie in the tile as in C, modulo 16 bytes, but begin at a whole word. So fragments are
// written in pairs, and rows of C that begin inside a word are put together when they are stored.
template <class Out>
__device__ __forceinline__ int past_unit(const Out* row) {
  return int(reinterpret_cast<uintptr_t>(row) % 16) / int(sizeof(Out));
}
template <class Out>
__device__ __forceinline__ int row_shift(const Out* row) {
  return sizeof(Out) == 2 ? (past_unit(row) + 1) & ~1 : 0;
}

// The 16 bytes that begin one element after `from`, if `odd`, or at `from`, which is aligned.
template <class Out>
__device__ __forceinline__ Unit load_unit(const Out* from, bool odd) {
  const Unit unit = load_vector<Unit>(from);
  if (!odd) return unit;
  const uint32_t next = load_speculative(reinterpret_cast<const uint32_t*>(from)[4]);
  Unit later;
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i) later[i] = __byte_perm(unit[i], i < 3 ? unit[i + 1] : next, 0x5432);
  return later;
}

// Stores a row of a tile by a warp. `to` and `from` have its first column, and C has `columns` from there on.
template <class C>
__device__ __forceinline__ void store_row(typename C::Out* to, const typename C::Out* from, int strip,
                                          int columns, const OuterArguments<C>& g) {
  using Out = typename C::Out;
  const int lane = int(threadIdx.x) % 32, lead = g.overlap > 0 ? before_next<kSectorBytes>(to) : 0;
  const bool begins_sector = strip > 0 && g.overlap > 0;
  const int begin = begins_sector ? lead : 0;
  const int end = strip == g.strips - 1 ? columns : C::kColumns - g.overlap + lead;
  if constexpr (sizeof(Out) == 2) {
    constexpr int kUnit = 8;
    const int head = begins_sector ? 0 : min(before_next<16>(to), end);
    const int first = begin + head, units = (end - first) / kUnit, tail = first + units * kUnit + lane;
    const bool odd = past_unit(to) % 2 != 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < C::kColumns / kUnit; i += 32) {
      const int at = first + (i + lane) * kUnit;
      if (i + lane < units) store_vector(to + at, load_unit(from + at - odd, odd));
    }
    if (lane < head) to[lane] = from[lane];
    if (tail < end) to[tail] = from[tail];
  } else {
    FASTGEMM_UNROLL
    for (int i = 0; i < C::kColumns; i += 32)
      if (const int at = begin + i + lane; at < end) to[at] = from[at];
  }
}

// Brings a step of the block's rows of A into shared memory, with zeros beyond k.
template <class C, class T = typename C::Type>
__device__ __forceinline__ void load_rows(T* to, const OuterArguments<C>& g, int matrix, int first_k,
                                          int first) {
  constexpr int kOfChunk = C::kRows * C::kDepth, kAtOnce = 4;
  const bool along_k = g.a.k_stride == 1;
  const T* const from = g.a.data + matrix * g.a.batch_stride;
  FASTGEMM_NO_UNROLL
  for (int i0 = int(threadIdx.x); i0 < g.chunks * kOfChunk; i0 += kAtOnce * C::kThreads) {
    FASTGEMM_UNROLL
    for (int turn = 0; turn < kAtOnce; ++turn) {
      const int i = i0 + turn * C::kThreads, rest = i % kOfChunk;
      const int row = i / kOfChunk * C::kRows + (along_k ? rest / C::kDepth : rest % C::kRows);
      const int k = along_k ? rest % C::kDepth : rest / C::kRows;
      if (i >= g.chunks * kOfChunk) continue;
      const int64_t at_row = min(int64_t(first + row), g.a.side - 1), at_k = first_k + k;
      to[row * C::kPitchA + k] = at_k < g.k ? from[at_row * g.a.side_stride + at_k * g.a.k_stride] : T{};
    }
  }
}

// alpha * sum + beta * c for a lane's sums. `row` and `column` are those of the first one in C.
template <class C, class Sum>
__device__ __forceinline__ void blend_sums(Sum& sum, const OuterArguments<C>& g, int matrix, int row,
                                           int column) {
  using T = typename C::Type;
  Result<T> r = g.result;
  r.c = static_cast<const typename C::Out*>(r.c) + matrix * r.c_batch_stride;
  FASTGEMM_UNROLL
  for (int j = 0; j < C::kTiles; ++j) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int at_row = row + 8 * (i / 2), at_column = column + 8 * j + i % 2;
      auto& x = sum[0][j][i];
      if (at_row < g.a.side && at_column < g.b.side)
        x = r.template blend<typename C::Out>(at_row, at_column, Accumulator<T>(x));
    }
  }
}

// A lane's results as they will lie in C. `column` is the first one's place in the tile.
template <class C, class Sum>
__device__ __forceinline__ void put_tile(typename C::Out* tile, const OuterArguments<C>& g, const Sum& sum,
                                         const typename C::Out* out, int row0, int column0, int column) {
  using Out = typename C::Out;
  using Acc = Accumulator<typename C::Type>;
  FASTGEMM_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = 8 * half + int(threadIdx.x) % 32 / 4;
    Out* const to =
        tile + row * C::kPitch + row_shift(out + (row0 + row) * g.result.row_stride + column0) + column;
    FASTGEMM_UNROLL
    for (int j = 0; j < C::kTiles; ++j) {
      const auto x = Acc(sum[0][j][2 * half]), y = Acc(sum[0][j][2 * half + 1]);
      if constexpr (sizeof(Out) == 2)
        store_vector(to + 8 * j, round_pair<Out>(x, y));
      else
        store_vector(to + 8 * j, Vector<Out, 2>{Out(x), Out(y)});
    }
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, C::kBlocks)
    gemm_outer_kernel(const __grid_constant__ OuterArguments<C> g) {
  using T = typename C::Type;
  using Out = typename C::Out;
  using Value = typename DirectType<T>::Value;
  FASTGEMM_SHARED Buffers<C> buffers;
  const int lane = int(threadIdx.x) % 32, w = warp_index(), matrix = int(blockIdx.z);
  const int strip = int(blockIdx.x) % g.strips, first = int(blockIdx.x) / g.strips * g.chunks * C::kRows;
  const int column0 = strip * (C::kColumns - g.overlap), warp_column = w * C::kWarpColumns;
  const bool has_columns = column0 + warp_column < g.b.side;
  const int end = int(min(g.a.side, int64_t(first + g.chunks * C::kRows)));
  Out* const out = static_cast<Out*>(g.result.out) + matrix * g.result.batch_stride;

  Value a[2][C::kValues], b[C::kTiles][C::kValues];
  FASTGEMM_NO_UNROLL
  for (int row0 = first, turn = 0; row0 < end; row0 += C::kRows, turn ^= 1) {
    Out* const tile = buffers.tiles[turn];  // the other one may still be stored
    typename C::Sum sum[1][C::kTiles][4] = {};
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < g.steps; ++step) {
      if (g.steps > 1 || row0 == first) {
        const int first_k = step * C::kDepth;
        load_rows<C>(buffers.a, g, matrix, first_k, first);
        __syncthreads();
        DirectFragment<T, int64_t, C::kTiles, C::kValues, false>(g.b, matrix, column0 + warp_column, first_k)
            .load(b, g.k - first_k - lane % 4 * DirectType<T>::kPacked, 0);
      }
      FASTGEMM_UNROLL
      for (int s = 0; s < 2; ++s) {
        const T* const from = buffers.a + (row0 - first + 8 * s + lane / 4) * C::kPitchA;
        FASTGEMM_UNROLL
        for (int v = 0; v < C::kValues; ++v)
          a[s][v] = load_vector<Value>(from + (4 * v + lane % 4) * DirectType<T>::kPacked);
      }
      multiply_direct<T, 1, C::kTiles, C::kValues>(sum, a, b);
      if (g.steps > 1) __syncthreads();
    }
    if (has_columns) {
      const int column = warp_column + 2 * (lane % 4);
      if (!g.plain) blend_sums<C>(sum, g, matrix, row0 + lane / 4, column0 + column);
      put_tile<C>(tile, g, sum, out, row0, column0, column);
    }
    __syncthreads();
    FASTGEMM_UNROLL
    for (int row = w; row < C::kRows; row += C::kWarps) {
      if (row0 + row >= end) break;
      Out* const to = out + (row0 + row) * g.result.row_stride + column0;
      store_row<C>(to, tile + row * C::kPitch + row_shift(to), strip, g.b.side - column0, g);
    }
  }
}

template <class C, class T>
void launch_outer(const Gemm<T>& g, int batch, Context& context) {
  using Out = typename C::Out;
  using Sum = Accumulator<T>;
  const Result<T>& r = g.result;
  const auto begins_sectors = [](int64_t bytes) { return bytes % kSectorBytes == 0; };
  const bool whole = begins_sectors(reinterpret_cast<intptr_t>(r.out)) &&
                     begins_sectors(r.row_stride * int64_t(sizeof(Out))) &&
                     begins_sectors(r.batch_stride * int64_t(sizeof(Out)));
  // Tiles that overlap would read elements of c that another tile may have overwritten.
  const int overlap = whole || r.beta != Sum(0) ? 0 : kSectorBytes / int(sizeof(Out));
  const int64_t strips = ceil_div(std::max<int64_t>(g.n - overlap, 1), C::kColumns - overlap);
  const int64_t rows = ceil_div(g.m, C::kRows), steps = ceil_div(g.k, C::kDepth);
  const int64_t chunks =
      steps > 1 ? 1
                : plans::outer_chunks(rows, strips * batch, C::kBlocks, C::kMostChunks, multiprocessors());
  const OuterArguments<C> arguments{.a = side_a(g, batch),
                                    .b = direct_operand<int64_t>(side_b(g, batch)),
                                    .k = int(g.k),
                                    .steps = int(steps),
                                    .strips = int(strips),
                                    .overlap = overlap,
                                    .chunks = int(chunks),
                                    .plain = r.alpha == Sum(1) && r.beta == Sum(0),
                                    .result = r};
  const dim3 grid(unsigned(strips * ceil_div(rows, chunks)), 1, unsigned(batch));
  launch<gemm_outer_kernel<C>>("outer", {grid, dim3(C::kThreads)}, context)(arguments);
}

}  // namespace

void gemm_outer(const GemmProblem& problem, Context& context) {
  run_gemm<double, float, Half, BFloat16, int8_t>(
      problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
        const auto run = [&]<class Out>() {
          plans::direct_values(sizeof(T), g.k) == 2 ? launch_outer<Config<T, Out, 2>>(g, batch, context)
                                                    : launch_outer<Config<T, Out, 4>>(g, batch, context);
        };
        if constexpr (Result<T>::kMayBeWide) {
          if (g.result.wide) return run.template operator()<WideResult<T>>();
        }
        run.template operator()<typename Result<T>::Stored>();
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
