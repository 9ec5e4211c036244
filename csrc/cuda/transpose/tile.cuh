// Accesses of 16 bytes, for levels 4 to 6: the block of V x V elements that one thread transposes in its
// registers, where V is the number of elements in 16 bytes, and the tile of such blocks in shared memory.
#pragma once

#include "cuda/transpose/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kWindow = 16;  // bytes of an aligned store
template <int Size>
inline constexpr int kPerUnit = 16 / Size;

// Exchanges element j of rows[i] and element i of rows[j]. For d = V/2 ... 1, row i exchanges the elements
// whose index has bit d for those of row i + d whose index lacks it. Words only change their names. Smaller
// elements take one byte permutation per word: 32 for 8 x 8 elements, 128 for 16 x 16.
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

// The 4 bytes from byte `offset` % 4 of low:high on.
__device__ __forceinline__ uint32_t bytes_of_words(uint32_t low, uint32_t high, int offset) {
  return uint32_t((uint64_t(high) << 32 | low) >> (8 * (offset & 3)));
}

// Transposes V rows of one word of src to one unit for each column in the word.
template <int Size>
inline constexpr int kWordCols = Size < 4 ? 4 / Size : 1;
template <int Size>
__device__ __forceinline__ void transpose_words(const uint32_t (&rows)[kPerUnit<Size>],
                                                Unit (&cols)[kWordCols<Size>]) {
  FASTGEMM_UNROLL
  for (int w = 0; w < 4; ++w) {
    if constexpr (Size == 4) {
      cols[0][w] = rows[w];
    } else if constexpr (Size == 2) {
      cols[0][w] = __byte_perm(rows[2 * w], rows[2 * w + 1], 0x5410);
      cols[1][w] = __byte_perm(rows[2 * w], rows[2 * w + 1], 0x7632);
    } else {
      const uint32_t* const four = rows + 4 * w;
      FASTGEMM_UNROLL
      for (int h = 0; h < 2; ++h) {  // two columns
        const int pairs = h == 0 ? 0x5140 : 0x7362;
        const uint32_t upper = __byte_perm(four[0], four[1], pairs),
                       lower = __byte_perm(four[2], four[3], pairs);
        cols[2 * h][w] = __byte_perm(upper, lower, 0x5410);
        cols[2 * h + 1][w] = __byte_perm(upper, lower, 0x7632);
      }
    }
  }
}

// The 16 bytes from byte `offset` (0 to 15) of low:high on. Its whole words are known at compile time: words
// == offset / 4. That saves the 11 selections of bytes_at() (cuda/device/vector.cuh).
template <int Size, int words>
__device__ __forceinline__ Unit bytes_at_words(const Unit& low, const Unit& high, int offset) {
  const uint32_t w[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
  Unit out;
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i)
    out[i] = Size <= 2 ? bytes_of_words(w[words + i], w[words + i + 1], offset) : w[words + i];
  return out;
}

// Calls body.operator()<words>() for 0 to 3 words, which must be the same in all lanes of a warp. Elements of
// 8 bytes are shifted by 0 or 2 words, and elements of 16 bytes by none.
template <int Size, class Body>
__device__ __forceinline__ void with_words(int words, Body&& body) {
  if constexpr (Size <= 4) {
    if (words == 1) return body.template operator()<1>();
    if (words == 3) return body.template operator()<3>();
  }
  if constexpr (Size <= 8)
    if (words == 2) return body.template operator()<2>();
  body.template operator()<0>();
}

// A tile of `Down` x `Across` blocks of V x V elements. It is stored as rows of dst: (kCols, Down) units.
template <int Size, int Down, int Across, int Threads>
struct Tile {
  static constexpr int V = kPerUnit<Size>, kAcross = Across, kThreads = Threads;
  static constexpr int kWarps = Threads / 32;
  // A row of dst begins at one of V places in a window; this place is its kind. A warp writes kSameRows rows
  // of the same kind at once, and all warps together write rows of kKinds kinds.
  static constexpr int kSameRows = 32 / Down, kKinds = kWarps < V ? kWarps : V;
  static constexpr int kRows = Down * V, kCols = Across * V;  // of src
  static constexpr int kBytes = kCols * Down * 16;
  static_assert(Down % 8 == 0 && (Down & (Down - 1)) == 0 && Down <= 32,
                "8 neighbouring units cover the 32 banks");
  static_assert(Threads % Across == 0 && Threads % Down == 0 && kBytes / 16 % Threads == 0);

  Unit* units;  // (kCols, Down)

  // The part of the matrix that a tile covers.
  struct Part {
    int64_t row, col;  // of the first element
    int rows, cols;
  };
  static __device__ __forceinline__ Part part_of(const Transpose& t, const Tiles& tiles,
                                                 const Tiles::Place& place) {
    const int64_t row = int64_t(place.row) * tiles.step, col = int64_t(place.col) * kCols;
    return {row, col, int(min(t.rows - row, int64_t(kRows))), int(min(t.cols - col, int64_t(kCols)))};
  }

  // Unit u of row j lies at place u ^ turn(j). So 8 lanes access all 32 banks when they write the same unit
  // of 8 rows that are V or V / 4 apart, and when they read 8 units of one row. If two row numbers have no
  // common bit, turn() of their sum is the XOR of their turns.
  static __device__ __forceinline__ constexpr int turn(unsigned j) {
    return int((j / V ^ (Size <= 4 ? j / kWordCols<Size> : 0)) % 8);
  }
  __device__ __forceinline__ Unit& unit(int j, int u) const { return units[j * Down + (u ^ turn(j))]; }

  // Stores transposed units as unit `down` of the rows from `first` on, a multiple of `count`.
  template <int count>
  __device__ __forceinline__ void put(int down, int first, const Unit (&block)[count]) const {
    FASTGEMM_UNROLL
    for (int j = 0; j < count; ++j)
      store_vector(&units[(first + j) * Down + (down ^ turn(first) ^ turn(j))], block[j]);
  }
  __device__ __forceinline__ Element<Size>& element(int i, int j) const {
    return *reinterpret_cast<Element<Size>*>(reinterpret_cast<char*>(&unit(j, i / V)) + i % V * Size);
  }

  // Reads the part from src: whole blocks through registers, 16 bytes at a time, if all rows are aligned to
  // 16 bytes. The remaining elements, or all, are read one by one.
  __device__ __forceinline__ void load(const Transpose& t, const Part& part) const {
    const char* const from = t.src + part.row * t.src_stride + part.col * Size;
    const bool aligned = is_aligned(t.src, 16) && t.src_stride % 16 == 0;
    const int whole_rows = aligned ? part.rows / V : 0, whole_cols = part.cols / V;
    const int across = int(threadIdx.x % Across), down = int(threadIdx.x / Across);
    constexpr int kBlocks = Down * Across / Threads;  // of a thread
    static_assert(kBlocks * Threads == Down * Across);
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
      put(d, across * V, block[n]);
    }
    load_elements(from, t.src_stride, whole_rows * V, part.rows, 0, part.cols);
    load_elements(from, t.src_stride, 0, whole_rows * V, whole_cols * V, part.cols);
  }

  // Reads rows [row, rows) of columns [col, cols): a warp reads along a row, with four loads per thread.
  __device__ __forceinline__ void load_elements(const char* from, int64_t stride, int row, int rows, int col,
                                                int cols) const {
    constexpr int kInFlight = 4;
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32);
    for (int j = col + lane; j < cols; j += 32)
      for (int first = row + warp; first < rows; first += kInFlight * kWarps) {
        Element<Size> value[kInFlight];
        FASTGEMM_UNROLL
        for (int e = 0; e < kInFlight; ++e)
          if (const int i = first + e * kWarps; i < rows)
            value[e] = *reinterpret_cast<const Element<Size>*>(from + i * stride + j * Size);
        FASTGEMM_UNROLL
        for (int e = 0; e < kInFlight; ++e)
          if (const int i = first + e * kWarps; i < rows) element(i, j) = value[e];
      }
  }

  // The size of a tile. It overlaps the tile above unless dst is aligned, so as to write whole windows only.
  static TileSize size_for(const Transpose& t, int64_t batch) {
    const bool aligned = is_aligned(t.dst, kWindow) && t.dst_stride % kWindow == 0 &&
                         (batch == 1 || t.dst_batch_stride % kWindow == 0);
    return {kRows, kCols, aligned ? 0 : kWindow / Size};
  }

  // Writes the part to dst in aligned windows of 16 bytes. If rows of dst begin in the middle of a window,
  // each window is made from two units by a shift. Tiles may overlap, so in every row a tile writes only the
  // windows that begin in its first `step` elements. The incomplete windows at the ends of a row are written
  // element by element.
  __device__ __forceinline__ void store(const Transpose& t, const Part& part, int step) const {
    if (is_aligned(t.dst, kWindow) && t.dst_stride % kWindow == 0)
      store_units(t, part);
    else
      store_windows(t, part, step);
    if (part.row == 0 || part.row + part.rows == t.rows) store_ends(t, part);
  }

  static __device__ __forceinline__ char* row_of_dst(const Transpose& t, const Part& part, int j) {
    return t.dst + (part.col + j) * t.dst_stride + part.row * Size;
  }
  // The bytes of a row before its first window.
  static __device__ __forceinline__ int lead_of(const char* row) {
    return int(-reinterpret_cast<uintptr_t>(row) % kWindow);
  }

  // Writes the part if rows of dst begin with a window.
  __device__ __forceinline__ void store_units(const Transpose& t, const Part& part) const {
    const int u = int(threadIdx.x % Down), first = int(threadIdx.x / Down);
    if (u >= part.rows / V) return;
    char* to = row_of_dst(t, part, first) + 16 * u;
    for (int j = first; j < part.cols; j += Threads / Down, to += Threads / Down * t.dst_stride)
      store_vector(to, load_vector<Unit>(&unit(j, u)));
  }

  // Writes the part if rows of dst begin inside a window. V rows of dst are a multiple of 16 bytes whatever
  // the stride, so rows with the same j % V begin at the same place in a window. A warp writes such rows, so
  // that one branch chooses by how many words all of them are shifted.
  __device__ __forceinline__ void store_windows(const Transpose& t, const Part& part, int step) const {
    const int lane = int(threadIdx.x % 32), warp = int(threadIdx.x / 32), u = lane % Down;
    const bool bottom = part.row + part.rows == t.rows;
    FASTGEMM_UNROLL
    for (int c = 0; c < V; c += kKinds) {
      const int j = c + warp % kKinds + V * (lane / Down + kSameRows * (warp / kKinds));
      char* const row = row_of_dst(t, part, j);
      const int lead = lead_of(row);
      if (16 * u + 16 > (bottom ? part.rows * Size - lead : step * Size)) continue;
      with_words<Size>(lead / 4, [&]<int words>() { store_rows<words>(t, part, row + lead, j, u, lead); });
    }
  }

  // Writes window u of row j, and of the rows that the warp writes after it.
  template <int words>
  __device__ __forceinline__ void store_rows(const Transpose& t, const Part& part, char* first, int j, int u,
                                             int lead) const {
    constexpr int kApart = V * kSameRows * (kWarps / kKinds), kTimes = kCols / kApart;
    constexpr int kInFlight = Size <= 2 ? 4 : 2;  // loads without a branch between them
    char* to = first + 16 * u;
    FASTGEMM_UNROLL
    for (int n = 0; n < kTimes; ++n, to += kApart * t.dst_stride) {
      if (n % kInFlight == 0 && j + n * kApart >= part.cols) break;
      const Unit* const row = units + (j + n * kApart) * Down;
      const int turned = turn(j) ^ turn(n * kApart);
      const Unit low = load_speculative(row[u ^ turned]),
                 high = load_speculative(row[((u + 1) & (Down - 1)) ^ turned]);
      if (j + n * kApart < part.cols) store_vector(to, bytes_at_words<Size, words>(low, high, lead));
    }
  }

  // Writes the incomplete windows. V threads write the elements of one window.
  __device__ __forceinline__ void store_ends(const Transpose& t, const Part& part) const {
    const int bytes = part.rows * Size, at = int(threadIdx.x % V) * Size;
    const bool top = part.row == 0, bottom = part.row + part.rows == t.rows;
    FASTGEMM_NO_UNROLL
    for (int j = int(threadIdx.x / V); j < part.cols; j += Threads / V) {
      char* const row = row_of_dst(t, part, j);
      const int lead = min(lead_of(row), bytes), last = lead + (bytes - lead) / kWindow * kWindow + at;
      using T = Element<Size>;
      if (top && at < lead) *reinterpret_cast<T*>(row + at) = element(at / Size, j);
      if (bottom && last < bytes) *reinterpret_cast<T*>(row + last) = element(last / Size, j);
    }
  }
};

// The tile for matrices with a side of at most 128 bytes.
template <int Size>
using ShortTile = Tile<Size, 8, 8, 64>;
inline bool is_short(const TransposeProblem& p) {
  return std::min(p.rows, p.cols) * element_size(p.type) <= 128;
}

}  // namespace fastgemm::FASTGEMM_TARGET
