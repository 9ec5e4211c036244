// Level 6: asynchrony. cp.async brings tiles into shared memory past registers: bytes in flight need no more
// than the place that they go to, and the blocks on a multiprocessor form a pipeline, in which some wait for
// their tile, some transpose and some write. The tile is transposed in registers and written back to the
// same buffer. Two or four tiles a block, each with a buffer of its own, are slower, and persistent blocks
// even more so: they drift apart, and no longer write neighbouring pieces at the same time.
//
// Aligned rows gain nothing over level 5, which has enough bytes in flight. What asynchrony buys is the rows
// that do not begin at multiples of 16 bytes: the aligned units that cover them, one more than a tile is
// wide, wait in shared memory until they are shifted in registers. Elements of 8 bytes are copied one by
// one. (A TMA descriptor would need rows that begin at multiples of 16 bytes.)
#include "cuda/device/async_copy.cuh"
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// How the rows of src arrive: by aligned units, by elements, or by the units that cover them.
enum class Rows { aligned, by_element, covered };

// Rows of src in shared memory.
template <int Size, class Shape, Rows rows>
struct Arrival {
  static constexpr int kAcross = Shape::kAcross, kThreads = Shape::kThreads;
  static constexpr int kPitch = kAcross + (rows == Rows::covered);
  static constexpr int kBytes = Shape::kRows * kPitch * 16;
  static constexpr int kWidth = rows == Rows::by_element ? Size : 16;
  using Part = typename Shape::Part;

  Unit* units;  // (kRows, kPitch)

  // Copies pieces of kWidth bytes: a tile that lies within rows of src on all sides needs to look nowhere.
  __device__ __forceinline__ void fetch(const Transpose& t, const Part& part) const {
    const int64_t behind = t.cols - part.col - Shape::kCols;  // columns
    const bool inside = rows == Rows::covered ? part.col > 0 && behind >= Shape::V : behind >= 0;
    if (part.rows < Shape::kRows || !inside) return fetch_at_edge(t, part);
    const char* const first = t.src + part.row * t.src_stride + part.col * Size;
    if constexpr (rows == Rows::covered)
      fetch_lines(first, t.src_stride);
    else
      fetch_pieces(first, t.src_stride);
  }

  // The threads side by side along rows.
  __device__ __forceinline__ void fetch_pieces(const char* first, int64_t stride) const {
    constexpr int kPieces = kAcross * 16 / kWidth;
    constexpr int kSideBySide = kPieces < kThreads ? kPieces : kThreads, kApart = kThreads / kSideBySide;
    const int piece = int(threadIdx.x) % kSideBySide, above = int(threadIdx.x) / kSideBySide;
    const char* row = first + above * stride;
    FASTGEMM_UNROLL
    for (int i = above; i < Shape::kRows; i += kApart, row += kApart * stride) {
      FASTGEMM_UNROLL
      for (int p = piece; p < kPieces; p += kSideBySide) copy_async<kWidth>(to(i, p), row + p * kWidth);
    }
  }

  // 8 threads copy a line of 128 bytes, or what the part has of it. Tiles side by side share the sector and
  // the line in which one ends and the other begins, so L2 is asked to prefetch both at once.
  __device__ __forceinline__ void fetch_lines(const char* first, int64_t stride) const {
    constexpr int kApart = kThreads / 8;
    const int lane = int(threadIdx.x) % 8, above = int(threadIdx.x) / 8;
    const char* row = first + above * stride;
    FASTGEMM_UNROLL
    for (int i = above; i < Shape::kRows; i += kApart, row += kApart * stride) {
      const int before = int(reinterpret_cast<uintptr_t>(row) % 128) / 16;
      FASTGEMM_UNROLL
      for (int line = 0; line <= kAcross / 8; ++line) {
        const int p = line * 8 + lane - before, begin = begin_of(row, p);
        if (p >= 0 && begin < kAcross * 16) copy_async_prefetching(to(i, p), row + begin);
      }
    }
  }

  // Where a tile reaches the beginning or the end of rows of src, pieces of which not all is theirs come by
  // elements: the bytes around a row may not belong to the matrix. (cp.async can leave out the end of a
  // piece, but how it does is taken for a read of all of it by compute-sanitizer.) What the matrix lacks
  // stays as it was.
  __device__ __forceinline__ void fetch_at_edge(const Transpose& t, const Part& part) const {
    constexpr int kPieces = kPitch * 16 / kWidth;
    FASTGEMM_NO_UNROLL
    for (int n = int(threadIdx.x); n < part.rows * kPieces; n += kThreads) {
      const int i = n / kPieces, p = n % kPieces;
      const char* const row = t.src + (part.row + i) * t.src_stride;
      const int64_t begin = part.col * Size + begin_of(row + part.col * Size, p), end = t.cols * Size;
      if (begin >= 0 && begin + kWidth <= end) {
        copy_async<kWidth>(to(i, p), row + begin);
        continue;
      }
      using T = Element<Size>;
      FASTGEMM_NO_UNROLL
      for (int e = 0; e < kWidth; e += Size)
        if (begin + e >= 0 && begin + e < end)
          *reinterpret_cast<T*>(to(i, p) + e) = *reinterpret_cast<const T*>(row + begin + e);
    }
  }

  // Piece p of row i, and where it begins in the row of src, of which the part has the bytes from `row` on.
  __device__ __forceinline__ char* to(int i, int p) const {
    return reinterpret_cast<char*>(&units[i * kPitch]) + p * kWidth;
  }
  static __device__ __forceinline__ int begin_of(const char* row, int p) {
    return p * kWidth - (rows == Rows::covered ? int(reinterpret_cast<uintptr_t>(row) % 16) : 0);
  }

  // The block (down, across) of V x V elements.
  __device__ __forceinline__ void take(const Transpose& t, const Part& part, int down, int across,
                                       Unit (&block)[Shape::V]) const {
    // All that counts of an address here is where in a unit it lies.
    const uint32_t stride = uint32_t(t.src_stride);
    uint32_t row = uint32_t(reinterpret_cast<uintptr_t>(t.src)) + uint32_t(part.col) * Size +
                   (uint32_t(part.row) + down * Shape::V) * stride;
    FASTGEMM_UNROLL
    for (int k = 0; k < Shape::V; ++k, row += stride) {
      const Unit* const unit = &units[(down * Shape::V + k) * kPitch + across];
      block[k] = load_speculative(unit[0]);
      if constexpr (rows == Rows::covered)
        block[k] = bytes_at<Size>(block[k], load_speculative(unit[1]), int(row % 16));
    }
  }
};

// Registers that a thread may take: its share of the tile (64 for bytes, 32 for halves, else 16), and what
// addresses need. Left alone, ptxas takes more, and fewer blocks fit.
template <int Size, class Shape, Rows rows>
constexpr int registers_for() {
  if (Size == 1) return 128;
  if (Size == 2) return rows == Rows::covered ? 80 : 64;
  const int share = Shape::kBlocks * Shape::V * 4;
  const bool large = Size == 4 && Shape::kThreads == 256;
  // Words in place: 40 registers do on Hopper, elsewhere they spill. 48 are those that 5 blocks of 8 warps
  // leave, or 19 of 2.
  if (Size == 4 && rows == Rows::aligned && !FASTGEMM_SM90A) return large ? 48 : 52;
  return large ? share + 24 : std::max(share + 32, 48);
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

  const int across = int(threadIdx.x) % Shape::kAcross, down = int(threadIdx.x) / Shape::kAcross;
  constexpr int kBlocksApart = Shape::kThreads / Shape::kAcross;
  Unit block[Shape::kBlocks][Shape::V];
  FASTGEMM_UNROLL
  for (int n = 0; n < Shape::kBlocks; ++n) {
    arrival.take(t, part, down + n * kBlocksApart, across, block[n]);
    transpose_block<Size>(block[n]);
  }
  __syncthreads();  // all threads have read their blocks, so the tile may overwrite them
  const Shape tile{units};
  FASTGEMM_UNROLL
  for (int n = 0; n < Shape::kBlocks; ++n) tile.put(down + n * kBlocksApart, across, block[n]);
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

void transpose_pipelined(const TransposeProblem& p, Context& context) {
  run_transpose<Narrow::flat>(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    const bool aligned = Size == 16 || (is_aligned(all.src, 16) && all.src_stride % 16 == 0 &&
                                        (batch == 1 || all.src_batch_stride % 16 == 0));
    const auto launch_by = [&]<Rows rows>() {
      if (is_short(p))
        launch_pipelined<Size, ShortTile<Size>, rows>(all, batch, context);
      else
        launch_pipelined<Size, typename PipelinedTile<Size, rows>::type, rows>(all, batch, context);
    };
    if (aligned)
      launch_by.template operator()<Rows::aligned>();
    else if constexpr (Size < 16)
      launch_by.template operator()<(Size == 8 ? Rows::by_element : Rows::covered)>();
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
