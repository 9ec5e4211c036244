// Level 6: asynchrony. cp.async brings tiles into shared memory past registers: bytes in flight need no more
// than the place that they go to, and the blocks on a multiprocessor form a pipeline, in which some wait for
// their tile, some transpose and some write. The tile is transposed in registers and written back to the
// same buffer. Two or four tiles a block, each with a buffer of its own, are slower, and persistent blocks
// even more so: they drift apart, and no longer write neighbouring pieces at the same time.
//
// Aligned rows gain nothing over level 5, which has enough bytes in flight. What asynchrony buys is the rows
// that do not begin at multiples of 16 bytes: the aligned units that cover them, one more than a tile is
// wide, wait in shared memory. From there they are read word by word, because a warp's 32 words may begin at
// any word without a conflict of banks, so that of the shift only that within a word costs instructions.
// Instructions are what odd rows of small elements are short of: a shift of whole units takes 15 of them for
// 16 bytes, on either side. Elements of 8 bytes are copied one by one. (A TMA descriptor would need rows that
// begin at multiples of 16 bytes.)
#include "cuda/device/async_copy.cuh"
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How the rows of src arrive: by aligned units, by elements, or by the units that cover them.
enum class Rows { aligned, by_element, covered };

// Rows of src in shared memory.
template <int Size, class Shape, Rows rows>
struct Arrival {
  static constexpr int kAcross = Shape::kAcross, kThreads = Shape::kThreads, V = Shape::V;
  static constexpr int kPitch = kAcross + (rows == Rows::covered);
  static constexpr int kBytes = Shape::kRows * kPitch * 16;
  static constexpr int kWidth = rows == Rows::by_element ? Size : 16;
  // Tiles side by side share the line in which one ends and the other begins. (Those of bytes are so large
  // that it makes no difference.)
  static constexpr bool kPrefetches = rows == Rows::covered && Size > 1;
  using Part = typename Shape::Part;

  Unit* units;  // (kRows, kPitch)

  // Threads side by side copy pieces of a row. A tile that lies within the matrix needs to look nowhere.
  __device__ __forceinline__ void fetch(const Transpose& t, const Part& part) const {
    const char* const from = t.src + part.row * t.src_stride + part.col * Size;
    const char* const last = from + (Shape::kRows - 1) * t.src_stride;
    const bool whole = part.rows == Shape::kRows && part.cols == Shape::kCols;
    if (whole && from - offset_of(from) >= t.src && last - offset_of(last) + kPitch * 16 <= end_of(t))
      fetch_rows<true>(t, part, from);
    else
      fetch_rows<false>(t, part, from);
  }

  template <bool inside>
  __device__ __forceinline__ void fetch_rows(const Transpose& t, const Part& part, const char* from) const {
    constexpr int kPieces = kAcross * 16 / kWidth, kSideBySide = kPieces < kThreads ? kPieces : kThreads;
    constexpr int kApart = kThreads / kSideBySide;
    const int piece = int(threadIdx.x % kSideBySide), above = int(threadIdx.x / kSideBySide);
    const char* row = from + above * t.src_stride;
    const auto fetch_row = [&](int i) {
      FASTGEMM_UNROLL
      for (int m = 0; m < kPieces; m += kSideBySide) fetch_piece<inside>(t, part, row, i, piece + m);
      row += kApart * t.src_stride;
    };
    if constexpr (inside) {
      FASTGEMM_UNROLL
      for (int i = 0; i < Shape::kRows; i += kApart) fetch_row(above + i);
    } else {
      FASTGEMM_NO_UNROLL
      for (int i = above; i < part.rows; i += kApart) fetch_row(i);
    }
    if constexpr (rows == Rows::covered) {  // one more unit of each row
      constexpr int kTimes = (Shape::kRows + kThreads - 1) / kThreads;
      row = from + int(threadIdx.x) * t.src_stride;
      FASTGEMM_UNROLL
      for (int n = 0; n < kTimes; ++n, row += kThreads * t.src_stride) {
        const int i = int(threadIdx.x) + n * kThreads;
        if (i < (inside ? Shape::kRows : part.rows) && offset_of(row) > 0)
          fetch_piece<inside>(t, part, row, i, kAcross);
      }
    }
  }

  // What a piece has of other rows of the matrix, or of what lies between them, does not count. Outside the
  // matrix nothing is read: there a piece comes by elements. (cp.async can leave out the end of a piece, but
  // how it does is taken for a read of all of it by compute-sanitizer.) What the matrix lacks stays as it
  // was.
  template <bool inside>
  __device__ __forceinline__ void fetch_piece(const Transpose& t, const Part& part, const char* row, int i,
                                              int p) const {
    const char* const from = row - offset_of(row) + p * kWidth;
    if constexpr (inside && kPrefetches)
      return copy_async_prefetching(to(i, p), from);
    else if constexpr (inside)
      return copy_async<kWidth>(to(i, p), from);
    const char* const end = row + part.cols * Size;
    if (from >= end) return;
    if (from >= t.src && from + kWidth <= end_of(t)) return copy_async<kWidth>(to(i, p), from);
    using T = Element<Size>;
    FASTGEMM_NO_UNROLL
    for (int e = 0; e < kWidth; e += Size)
      if (from + e >= row && from + e < end)
        *reinterpret_cast<T*>(to(i, p) + e) = *reinterpret_cast<const T*>(from + e);
  }

  static __device__ __forceinline__ const char* end_of(const Transpose& t) {
    return t.src + (t.rows - 1) * t.src_stride + t.cols * Size;
  }
  // Bytes before a row in its first unit.
  static __device__ __forceinline__ int offset_of(const char* row) {
    return rows == Rows::covered ? int(reinterpret_cast<uintptr_t>(row) % 16) : 0;
  }
  // Piece p of row i.
  __device__ __forceinline__ char* to(int i, int p) const {
    return reinterpret_cast<char*>(&units[i * kPitch]) + p * kWidth;
  }

  // Aligned rows: the block (down, across) of V x V elements.
  __device__ __forceinline__ void take_block(int down, int across, Unit (&block)[V]) const {
    FASTGEMM_UNROLL
    for (int k = 0; k < V; ++k) block[k] = load_speculative(units[(down * V + k) * kPitch + across]);
    transpose_block<Size>(block);
  }

  // Covered rows: V rows of the word at `word`. V rows of src are a multiple of 16 bytes, whatever the
  // stride, so that all lanes shift a row by the same.
  __device__ __forceinline__ void take_words(const Transpose& t, const Part& part, int down, int word,
                                             Unit (&block)[kWordCols<Size>]) const {
    // All that counts of an address here is where in a unit it lies.
    const uint32_t stride = uint32_t(t.src_stride);
    uint32_t row = uint32_t(reinterpret_cast<uintptr_t>(t.src)) + uint32_t(part.col) * Size +
                   uint32_t(part.row) * stride;
    uint32_t words[V];
    FASTGEMM_UNROLL
    for (int k = 0; k < V; ++k, row += stride) {
      const uint32_t* const from =
          reinterpret_cast<const uint32_t*>(&units[(down * V + k) * kPitch]) + word + row % 16 / 4;
      words[k] = load_speculative(from[0]);
      if constexpr (Size < 4) words[k] = bytes_of_words(words[k], load_speculative(from[1]), int(row));
    }
    transpose_words<Size>(words, block);
  }

  // The thread's share of the tile, which goes to the places of `tile` when everyone has read theirs.
  __device__ __forceinline__ void turn(const Transpose& t, const Part& part, const Shape& tile) const {
    constexpr bool by_words = rows == Rows::covered;
    constexpr int kColumns = kAcross * (by_words ? 4 : 1), kWide = by_words ? kWordCols<Size> : V;
    constexpr int kBlocks = Shape::kRows / V * kColumns / kThreads, kApart = kThreads / kColumns;
    static_assert(kBlocks * kApart * V == Shape::kRows);
    const int across = int(threadIdx.x % kColumns), down = int(threadIdx.x / kColumns);
    Unit block[kBlocks][kWide];
    FASTGEMM_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      if constexpr (by_words)
        take_words(t, part, down + n * kApart, across, block[n]);
      else
        take_block(down + n * kApart, across, block[n]);
    }
    __syncthreads();
    FASTGEMM_UNROLL
    for (int n = 0; n < kBlocks; ++n) tile.put(down + n * kApart, across * kWide, block[n]);
  }
};

// Registers that a thread may take: its share of the tile (up to 64 for bytes, 32 for halves and words), and
// what addresses need. Left alone, ptxas takes more, and fewer blocks fit.
template <int Size, class Shape, Rows rows>
constexpr int registers_for() {
  if (Size == 1) return 80;
  if (Size == 2) return 64;
  const int share = Shape::kRows * Shape::kAcross * 4 / Shape::kThreads;
  const bool large = Size == 4 && Shape::kThreads == 256;
  // Words in place: 40 registers do on Hopper, elsewhere they spill. 48 are those that 5 blocks of 8 warps
  // leave, or 19 of 2.
  if (Size == 4 && rows == Rows::aligned && !FASTGEMM_SM90A) return large ? 48 : 52;
  return large ? share + 24 : std::max(share + 32, Size == 16 && Shape::kThreads < 256 ? 56 : 48);
}

template <int Size, class Shape, Rows rows>
__global__ void __launch_bounds__(Shape::kThreads,
                                  65536 / (Shape::kThreads * registers_for<Size, Shape, rows>()))
    transpose_pipelined_kernel(Transpose batch, Tiles tiles) {
  FASTGEMM_DYNAMIC_SHARED(Unit, units);
  const Tiles::Place place = tiles.in_bands(blockIdx.x);
  const Transpose t = batch.at_matrix(place.matrix);
  const auto part = Shape::part_of(t, tiles, place);
  const Arrival<Size, Shape, rows> arrival{units};
  arrival.fetch(t, part);
  commit_async_copies();
  wait_async_copies<0>();
  __syncthreads();  // everyone's copies have landed

  const Shape tile{units};
  arrival.turn(t, part, tile);
  __syncthreads();
  tile.store(t, part, tiles.step);
}

template <int Size, class Shape, Rows rows>
void launch_pipelined(const Transpose& all, int64_t batch, Context& context, uint32_t band = UINT32_MAX) {
  launch_tiles(
      all, batch, Shape::size_for(all, batch),
      [&](const Transpose& t, const Tiles& tiles, unsigned count) {
        constexpr int kSharedBytes = std::max(Shape::kBytes, Arrival<Size, Shape, rows>::kBytes);
        launch<transpose_pipelined_kernel<Size, Shape, rows>>(
            "pipelined", {dim3(count), dim3(Shape::kThreads), kSharedBytes}, context)(t, tiles);
      },
      band);
}

// (256, 256) bytes, (128, 128) halves, (64, 64) words, (32, 64), (16, 64). Rows that do not begin at units
// want more rows a tile, of which fewer are read twice: (128, 64) words, (64, 64).
template <int Size, Rows rows>
struct PipelinedTile {
  using type = Tile<Size, 16, Size <= 4 ? 16 : 4 * Size, 256>;
};
template <>
struct PipelinedTile<4, Rows::covered> {
  using type = Tile<4, 32, 16, 256>;
};
template <>
struct PipelinedTile<8, Rows::by_element> {
  using type = Tile<8, 32, 32, 256>;
};
// Where matrices are short, or elements of up to 4 bytes make fewer tiles than there are multiprocessors,
// tiles have 128 bytes a side, or 64 along src, and a thread has no more than 4 units: what counts is the
// time that one tile takes.
template <int Size, int across>
using SmallTile = Tile<Size, 8, across, std::max(2 * across * kPerUnit<Size>, 64)>;

// Tiles of a type in all matrices.
template <class Shape>
int64_t tiles_of(const TransposeProblem& p) {
  return p.batch * ceil_div(p.rows, Shape::kRows) * ceil_div(p.cols, Shape::kCols);
}

template <int Size, Rows rows>
void launch_by_tiles(const TransposeProblem& p, const Transpose& all, Context& context) {
  using Large = typename PipelinedTile<Size, rows>::type;
  const bool small = is_short(p) || (Size <= 4 && tiles_of<Large>(p) < multiprocessors());
  if (!small) return launch_pipelined<Size, Large, rows>(all, p.batch, context);
  if constexpr (Size > 4)
    launch_pipelined<Size, ShortTile<Size>, rows>(all, p.batch, context);
  else if (p.cols * Size <= 64)
    launch_pipelined<Size, SmallTile<Size, 4>, Rows::covered>(all, p.batch, context);
  else
    launch_pipelined<Size, SmallTile<Size, 8>, Rows::covered>(all, p.batch, context);
}

void transpose_pipelined(const TransposeProblem& p, Context& context) {
  run_transpose<Narrow::flat>(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    const bool aligned = Size == 16 || (is_aligned(all.src, 16) && all.src_stride % 16 == 0 &&
                                        (batch == 1 || all.src_batch_stride % 16 == 0));
    if (aligned)
      launch_by_tiles<Size, Rows::aligned>(p, all, context);
    else if constexpr (Size < 16)
      launch_by_tiles<Size, (Size == 8 ? Rows::by_element : Rows::covered)>(p, all, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
