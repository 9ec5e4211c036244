// Level 6: asynchrony. cp.async copies tiles to shared memory without going through registers, so bytes in
// flight take no space but their destination. The blocks on a multiprocessor form a pipeline: some wait for
// their tile, some transpose and some write. The tile is transposed in registers and written back to the same
// buffer. Two or four tiles per block, each with its own buffer, are slower. Persistent blocks are even
// slower: they drift apart, and no longer write neighbouring pieces at the same time.
//
// Aligned rows gain nothing over level 5, which has enough bytes in flight. Rows that do not begin at
// multiples of 16 bytes gain. The aligned units that cover such a row, one more than the tile is wide, are
// copied to shared memory and read from there word by word. A warp's 32 words may begin at any word without
// bank conflicts, so only the shift within a word costs instructions. Instructions are the limit for such
// rows of small elements: to shift whole units takes 15 instructions for 16 bytes, when reading src and again
// when writing dst. Elements of 8 bytes are copied one by one. (The TMA cannot be used: it needs rows that
// begin at multiples of 16 bytes.)
#include "cuda/device/async_copy.cuh"
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How rows of src reach shared memory: as aligned units, as elements, or as the units that cover them.
enum class Rows { aligned, by_element, covered };

// The rows of src in shared memory.
template <int Size, class Shape, Rows rows>
struct Arrival {
  static constexpr int kAcross = Shape::kAcross, kThreads = Shape::kThreads, V = Shape::V;
  static constexpr int kPitch = kAcross + (rows == Rows::covered);
  static constexpr int kBytes = Shape::kRows * kPitch * 16;
  static constexpr int kWidth = rows == Rows::by_element ? Size : 16;
  // Neighbouring tiles share the line in which one ends and the other begins, so it is prefetched. (Tiles of
  // bytes are so large that this makes no difference.)
  static constexpr bool kPrefetches = rows == Rows::covered && Size > 1;
  using Part = typename Shape::Part;

  Unit* units;  // (kRows, kPitch)

  // Neighbouring threads copy neighbouring pieces of a row. Tiles inside the matrix need no checks.
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

  // A piece may contain bytes of other rows of the matrix, or of the gaps between rows; they are not used.
  // Nothing outside the matrix is read: a piece that reaches beyond it is copied by elements. (cp.async could
  // skip the end of a piece, but compute-sanitizer reports that as a read of the whole piece.) Where the
  // matrix has no elements, shared memory is left unchanged.
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
  // The bytes before a row in its first unit.
  static __device__ __forceinline__ int offset_of(const char* row) {
    return rows == Rows::covered ? int(reinterpret_cast<uintptr_t>(row) % 16) : 0;
  }
  // The address of piece p of row i.
  __device__ __forceinline__ char* to(int i, int p) const {
    return reinterpret_cast<char*>(&units[i * kPitch]) + p * kWidth;
  }

  // For aligned rows: reads and transposes the block (down, across) of V x V elements.
  __device__ __forceinline__ void take_block(int down, int across, Unit (&block)[V]) const {
    FASTGEMM_UNROLL
    for (int k = 0; k < V; ++k) block[k] = load_speculative(units[(down * V + k) * kPitch + across]);
    transpose_block<Size>(block);
  }

  // For covered rows: reads and transposes V rows of the word at `word`. V rows of src are a multiple of 16
  // bytes whatever the stride, so all lanes shift a row by the same distance.
  __device__ __forceinline__ void take_words(const Transpose& t, const Part& part, int down, int word,
                                             Unit (&block)[kWordCols<Size>]) const {
    // Only the offset of an address in its unit matters here, so 32 bits are enough.
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

  // Transposes the thread's share of the tile, and writes it to `tile` after all threads have read theirs.
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

// The registers that a thread may take: its share of the tile (up to 64 for bytes, 32 for 16-bit elements and
// words), and some for addresses. Without a limit ptxas takes more, and fewer blocks fit.
template <int Size, class Shape, Rows rows>
constexpr int registers_for() {
  if (Size == 1) return 80;
  if (Size == 2) return 64;
  const int share = Shape::kRows * Shape::kAcross * 4 / Shape::kThreads;
  const bool large = Size == 4 && Shape::kThreads == 256;
  // Aligned words need 40 registers on Hopper; on other GPUs they would spill with so few. 48 still allow 5
  // blocks of 8 warps, 52 allow 19 blocks of 2 warps.
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
  __syncthreads();  // the copies of all threads have completed

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

// Tiles of (256, 256) bytes, (128, 128) 16-bit elements, (64, 64) words, (32, 64) elements of 8 bytes, or
// (16, 64) of 16 bytes. Unaligned rows need taller tiles, so that a smaller part of them is read twice: (128,
// 64) words, (64, 64) elements of 8 bytes.
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
// Small tiles have 128 bytes along each side, or 64 along the rows of src, and a thread has at most 4 units.
// They are for short matrices, and for elements of up to 4 bytes if there are fewer large tiles than
// multiprocessors. Then the time of a single tile matters.
template <int Size, int across>
using SmallTile = Tile<Size, 8, across, std::max(2 * across * kPerUnit<Size>, 64)>;

// The number of tiles of this shape in all matrices.
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
