// Accesses of 16 bytes: the block of V x V elements (16 bytes hold V) that one thread transposes in its
// registers, and the tile of such blocks that is staged in shared memory. Levels 4 to 6 share it.
#pragma once

#include "cuda/transpose/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kSector = 32;  // bytes that L2 and DRAM exchange at least
template <int Size>
inline constexpr int kPerUnit = 16 / Size;

// rows[i] element j <-> rows[j] element i. At distance d = V/2 ... 1, rows i and i + d exchange the elements
// whose index has the bit d, or lacks it. Whole words only change their names; pieces of words take one byte
// permutation for every word: 32 for 8 x 8 halves, 128 for 16 x 16 bytes.
template <int Size>
__device__ __forceinline__ void transpose_block(Unit (&rows)[kPerUnit<Size>]) {
  FASTGEMM_UNROLL
  for (int d = kPerUnit<Size> / 2; d >= 1; d /= 2) {
    const int words = d * Size / 4;  // 0: within words
    FASTGEMM_UNROLL
    for (int i = 0; i < kPerUnit<Size>; ++i) {
      if (i & d) continue;
      Unit &upper = rows[i], &lower = rows[i + d];
      FASTGEMM_UNROLL
      for (int w = 0; w < 4; ++w) {
        const uint32_t u = upper[w], l = lower[w];
        if (words == 0) {
          upper[w] = __byte_perm(u, l, d * Size == 2 ? 0x5410 : 0x6240);
          lower[w] = __byte_perm(u, l, d * Size == 2 ? 0x7632 : 0x7351);
        } else if ((w & words) == 0) {
          const uint32_t other = upper[w + words];
          upper[w + words] = l;
          lower[w] = other;
        }
      }
    }
  }
}

template <int Size>
__device__ __forceinline__ Element<Size> element_of(const Unit& unit, int index) {
  if constexpr (Size == 16)
    return unit;
  else if constexpr (Size == 8)
    return uint64_t(unit[2 * index + 1]) << 32 | unit[2 * index];
  else
    return Element<Size>(unit[index * Size / 4] >> (8 * (index * Size % 4)));
}

// A tile of `Down` x `Across` blocks of V x V elements, held as rows of dst: (kCols, Down) units.
template <int Size, int Down, int Across, int Threads>
struct Tile {
  static constexpr int V = kPerUnit<Size>, kAcross = Across, kThreads = Threads;
  static constexpr int kRows = Down * V, kCols = Across * V;  // of src
  static constexpr int kBytes = kCols * Down * 16;
  static constexpr int kBlocks = Down * Across / Threads;  // a thread transposes
  static_assert(Down % 8 == 0 && (Down & (Down - 1)) == 0, "8 neighbouring units cover the 32 banks");
  static_assert(Threads % Across == 0 && Threads % Down == 0 && Down * Across % Threads == 0);

  Unit* units;  // (kCols, Down)

  // The part of the matrix that the tile at this place covers.
  struct Part {
    int64_t row, col;  // of the first element
    int rows, cols;
  };
  static __device__ __forceinline__ Part part_of(const Transpose& t, const Tiles& tiles,
                                                 const Tiles::Place& place) {
    const int64_t row = int64_t(place.row) * tiles.step, col = int64_t(place.col) * kCols;
    return {row, col, int(min(t.rows - row, int64_t(kRows))), int(min(t.cols - col, int64_t(kCols)))};
  }

  // Unit u of row j. The XOR turns the units of every V rows by one place: 8 lanes that write the same unit
  // of 8 blocks side by side, and 8 lanes that read a row, both touch all 32 banks.
  __device__ __forceinline__ Unit& unit(int j, int u) const { return units[j * Down + (u ^ (j / V % 8))]; }

  // The V units of block column `across` that a thread has transposed become column `down` of the tile.
  __device__ __forceinline__ void put(int down, int across, const Unit (&block)[V]) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < V; ++j) store_vector(&unit(across * V + j, down), block[j]);
  }
  __device__ __forceinline__ void put_element(int i, int j, Element<Size> value) const {
    *reinterpret_cast<Element<Size>*>(reinterpret_cast<char*>(&unit(j, i / V)) + i % V * Size) = value;
  }

  // Reads the part from src: whole blocks through registers, by 16 bytes, if all rows are aligned to them;
  // the ragged rest, or everything, element by element.
  __device__ __forceinline__ void load(const Transpose& t, const Part& part) const {
    const char* const from = t.src + part.row * t.src_stride + part.col * Size;
    const bool aligned = is_aligned(t.src, 16) && t.src_stride % 16 == 0;
    const int whole_rows = aligned ? part.rows / V : 0, whole_cols = part.cols / V;
    const int across = int(threadIdx.x) % Across, down = int(threadIdx.x) / Across;
    Unit block[kBlocks][V];
    FASTGEMM_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      const int d = down + n * (Threads / Across);
      if (d >= whole_rows || across >= whole_cols) continue;
      FASTGEMM_UNROLL
      for (int i = 0; i < V; ++i)
        block[n][i] = load_vector<Unit>(from + (d * V + i) * t.src_stride + across * 16);
    }
    FASTGEMM_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      const int d = down + n * (Threads / Across);
      if (d >= whole_rows || across >= whole_cols) continue;
      transpose_block<Size>(block[n]);
      put(d, across, block[n]);
    }
    load_elements(from, t.src_stride, whole_rows * V, part.rows, 0, part.cols);
    load_elements(from, t.src_stride, 0, whole_rows * V, whole_cols * V, part.cols);
  }

  // Rows [row, rows) of columns [col, cols): a warp along a row, each thread four rows in flight.
  __device__ __forceinline__ void load_elements(const char* from, int64_t stride, int row, int rows, int col,
                                                int cols) const {
    constexpr int kInFlight = 4, kWarps = Threads / 32;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    for (int j = col + lane; j < cols; j += 32)
      for (int first = row + warp; first < rows; first += kInFlight * kWarps) {
        Element<Size> value[kInFlight];
        FASTGEMM_UNROLL
        for (int e = 0; e < kInFlight; ++e)
          if (const int i = first + e * kWarps; i < rows)
            value[e] = *reinterpret_cast<const Element<Size>*>(from + i * stride + j * Size);
        FASTGEMM_UNROLL
        for (int e = 0; e < kInFlight; ++e)
          if (const int i = first + e * kWarps; i < rows) put_element(i, j, value[e]);
      }
  }

  // Rows that a tile reads of the one above, so that what it writes can begin and end with whole sectors.
  static TileSize size_for(const Transpose& t, int64_t batch) {
    const bool by_sectors = is_aligned(t.dst, kSector) && t.dst_stride % kSector == 0 &&
                            (batch == 1 || t.dst_batch_stride % kSector == 0);
    return {kRows, kCols, by_sectors ? 0 : kSector / Size};
  }

  // Writes the part to dst, by aligned windows of 16 bytes: where rows of dst begin in the middle of one, it
  // is shifted together from two units. Of every row the tile writes the sectors that begin in its first
  // `step` elements, because a sector that is written in part costs DRAM a read as well. The incomplete
  // windows at the ends of a row are written element by element.
  __device__ __forceinline__ void store(const Transpose& t, const Part& part, int step) const {
    if (Size <= 2 && is_aligned(t.dst, 16) && t.dst_stride % 16 == 0)
      store_windows<false>(t, part, step);
    else
      store_windows<true>(t, part, step);
  }

  // Window 0 may begin before the part, and then stands for the window behind the last unit as well. Words
  // and wider elements turn the windows among the threads, so that 8 side by side write one line of 128
  // bytes; bytes and halves are short of instructions, not of requests, and aligned rows spare them all this.
  template <bool shifted>
  __device__ __forceinline__ void store_windows(const Transpose& t, const Part& part, int step) const {
    char* const to = t.dst + part.col * t.dst_stride + part.row * Size;
    const bool top = part.row == 0, bottom = part.row + part.rows == t.rows;
    for (int j = int(threadIdx.x) / Down; j < part.cols; j += Threads / Down) {
      char* const row = to + j * t.dst_stride;
      const int to_line = int(-reinterpret_cast<uintptr_t>(row) % 128), lead = to_line % kSector;
      const int shift = shifted ? -lead & 15 : 0, turn = shifted && Size >= 4 ? (to_line + shift) / 16 : 0;
      const int u = (int(threadIdx.x) + turn) % Down;
      const int first = top ? 0 : lead, last = bottom ? part.rows * Size : lead + step * Size;
      const int begin = 16 * u - shift;
      Unit value = load_speculative(unit(j, u));
      if (shift) value = bytes_at<Size>(load_speculative(unit(j, (u + Down - 1) % Down)), value, 16 - shift);
      if (begin >= first && begin + 16 <= last) {
        store_vector(row + begin, value);
      } else if ((top || bottom) && begin < last) {
        FASTGEMM_UNROLL
        for (int e = 0; e < V; ++e) {
          const int at = begin + e * Size, place = at < 0 ? at + 16 * Down : at;
          if (place >= first && place < last)
            *reinterpret_cast<Element<Size>*>(row + place) = element_of<Size>(value, e);
        }
      }
    }
  }
};

// The tile for matrices of which one side fits into 128 bytes.
template <int Size>
using ShortTile = Tile<Size, 8, 8, 64>;
inline bool is_short(const TransposeProblem& p) {
  return std::min(p.rows, p.cols) * element_size(p.type) <= 128;
}

}  // namespace fastgemm::FASTGEMM_TARGET
