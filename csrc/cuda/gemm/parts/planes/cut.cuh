// The pre-pass of products by planes. It reads both operands, whatever their strides and alignment, cuts
// every element into planes, and writes the planes as images. An image has the layout of a stage of a tile in
// shared memory. So the main kernel copies whole images, and needs to know neither strides nor edges.
//
//   operand, 4 or 2 bytes an element      cut        images in the workspace, [tile][stage][plane]
//              stage 0   stage 1                     +---------+---------+---------+---------+---------+----
//            +---------+---------+              ->   | plane 0 | plane 1 | plane 2 | plane 0 | plane 1 | ...
//   tile 0   |   x     |         |  x = p0+p1+p2     +---------+---------+---------+---------+---------+----
//            +---------+---------+                   |<-- stage 0 of tile 0 ------>|<-- stage 1 of tile 0 ...
//   tile 1   |         |         |
//            +---------+---------+
//
// The image of one plane of a stage has the shape (kStageK / kPerUnit units of 16 bytes along k, tile_side
// rows of m or columns of n, 16 bytes). wgmma reads this layout without a swizzle (wgmma.cuh), and it has no
// bank conflicts.
//
// A block cuts a few rows (of m, or columns of n) for all of k. At the end it knows the largest and the
// smallest magnitude of each row, and if a row needs a scale, cuts the rows a second time, scaled. Reading an
// operand that lies along m or n takes slightly longer than one that lies along k.
#pragma once

#include "cuda/device/sync.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/planes/scheme.cuh"
#include "cuda/gemm/parts/problem.cuh"
#include "cuda/gemm/parts/sides.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// The rows that a block cuts; decode_planes.cu has blocks for single rows. Where memory runs along m or n, a
// warp reads this many neighbours, which are a 32-byte sector of float32. A word of `scaled` stands for such
// a group.
inline constexpr int kRowGroup = 8;

// An operand (side, k), where side is m of A or n of B, and the memory for its planes.
template <class T>
struct Source {
  const T* data;
  int64_t side_stride, k_stride, batch_stride;
  int side, k;
  int tile_side, tiles, stages;  // rows per tile, tiles per matrix, stages per tile
  bool along_k;                  // memory is contiguous along k
  unsigned char* images;         // [matrix][tile][stage][plane]
  float* unscale;                // [matrix][row]: the factor that undoes the row's scale
  uint32_t* scaled;              // [matrix][row / kRowGroup]: whether any row of the group has a scale

  __host__ __device__ __forceinline__ int rows() const { return tiles * tile_side; }
  __host__ __device__ __forceinline__ int blocks(int group = kRowGroup) const {  // blocks per matrix
    return rows() / group;
  }
};

template <class Scheme>
struct CutArguments {
  Source<typename Scheme::Operand> a, b;
  [[no_unique_address]] typename Scheme::Tiles tiles;
  int matrices_a, matrices_b;
  int blocks_a;
  uint32_t* flags;  // cleared for the main kernel
  int flag_count;
};

// How many words a thread loads before it uses any of them: kManyWords, the most for which there are
// registers; kFewWords, half of that; or kOneUnit, one unit, if a block cuts a single row. A launch of few
// blocks or of a short k is limited by cold caches: even its instructions come from DRAM. The loop over half
// as many words has half the code, and more threads run it.
inline constexpr int kManyWords = 32, kFewWords = 16, kOneUnit = 8;
inline constexpr int kMostCutThreads = 1024;
template <int words>
inline constexpr int kCutThreads = words == kManyWords ? 256 : kMostCutThreads;

__device__ __forceinline__ uint32_t bits_of(float x) { return __float_as_uint(x); }
__device__ __forceinline__ uint32_t bits_of(int32_t x) { return uint32_t(x); }
__device__ __forceinline__ uint32_t bits_of(LongInt16 x) { return uint16_t(x.bits); }

// The work of one thread: it cuts 16-byte units of one row. The lanes of a warp have neighbouring units of
// the block's rows.
template <class Scheme, bool along_k, int words_at_a_time, int group>
class RowCutter {
  using T = typename Scheme::Operand;
  static_assert(sizeof(T) == 4 || sizeof(T) == 2, "an element is a word or half of one");
  static constexpr int kPerWord = 4 / int(sizeof(T));
  static constexpr int kElements = kPerUnit<Scheme>, kWords = kElements / kPerWord;  // per unit
  static constexpr int kStageUnits = Scheme::kStageK / kElements;
  static constexpr int kUnits = words_at_a_time / kElements;  // units that a thread loads at a time
  static constexpr int kLanes = 32 / group;                   // side by side along k

 public:
  __device__ __forceinline__ RowCutter(const Source<T>& s, int matrix, int block)
      : s_(s),
        lane_(int(threadIdx.x) % 32),
        warp_(int(threadIdx.x) / 32),
        row_(block * group + lane_ % group) {
    const int tile = row_ / s.tile_side;
    plane_bytes_ = s.tile_side * Scheme::kStageK * int(sizeof(typename Scheme::Element));
    from_ = s.data + matrix * s.batch_stride + row_ * s.side_stride;
    misaligned_ = int(reinterpret_cast<uintptr_t>(from_) % 16 / sizeof(T));
    to_ = s.images + (int64_t(matrix) * s.tiles + tile) * s.stages * (Scheme::kPlanes * plane_bytes_) +
          (row_ - tile * s.tile_side) * 16;
  }

  __device__ __forceinline__ int row() const { return row_; }

  // Cuts the thread's part of its row, multiplied by scale, and stores the planes if `stores`. Returns the
  // magnitudes of the part.
  __device__ __forceinline__ Magnitudes cut(float scale, bool stores = true) const {
    Magnitudes magnitudes;
    const int units = s_.stages * kStageUnits;
    const int step = int(blockDim.x) / 32 * kLanes * kUnits;
    FASTGEMM_NO_UNROLL
    for (int first = warp_ * kLanes * kUnits; first < units; first += step) {
      uint32_t words[kUnits][kWords];
      FASTGEMM_UNROLL
      for (int u = 0; u < kUnits; ++u) load(words[u], unit(first, u) * kElements);
      FASTGEMM_UNROLL
      for (int u = 0; u < kUnits; ++u) {
        if constexpr (Scheme::kScaling != Scaling::none) {
          FASTGEMM_UNROLL
          for (uint32_t& word : words[u]) {
            magnitudes.template add<Scheme::kScaling == Scaling::small_elements>(word);
            word = __float_as_uint(__uint_as_float(word) * scale);
          }
        }
        if (stores && unit(first, u) < units) store(words[u], unit(first, u));
      }
    }
    return magnitudes;
  }

 private:
  __device__ __forceinline__ int unit(int first, int u) const { return first + kLanes * u + lane_ / group; }

  __device__ __forceinline__ void load(uint32_t (&words)[kWords], int k) const {
    const bool inside = row_ < s_.side;
    if constexpr (along_k) {
      const int first = k - misaligned_;
      if (inside && misaligned_ == 0 && k + kElements <= s_.k) return load_vectors(words, from_ + k);
      if (inside && first >= 0 && first + kElements + 4 * kPerWord <= s_.k) {
        uint32_t around[kWords + 4];
        load_vectors(around, from_ + first);
        return shift(around, words);
      }
    }
    const int64_t stride = along_k ? 1 : s_.k_stride;
    const T* const begin = from_ + k * stride;
    FASTGEMM_UNROLL
    for (int i = 0; i < kElements; ++i) {
      const T* const from = begin + i * stride;  // outside of the condition: inside it would spill registers
      const uint32_t bits = inside && k + i < s_.k ? bits_of(*from) : 0;
      words[i / kPerWord] = i % kPerWord == 0 ? bits : words[i / kPerWord] | bits << 16;
    }
  }

  template <int count>
  __device__ __forceinline__ static void load_vectors(uint32_t (&to)[count], const T* from) {
    FASTGEMM_UNROLL
    for (int i = 0; i < count; i += 4) {
      const auto v = load_vector<Vector<uint32_t, 4>>(from + i * kPerWord);
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j) to[i + j] = v[j];
    }
  }

  // Selects the words that begin misaligned_ elements further on.
  __device__ __forceinline__ void shift(uint32_t (&around)[kWords + 4], uint32_t (&words)[kWords]) const {
    const int by = misaligned_ / kPerWord;
    FASTGEMM_UNROLL
    for (int i = 0; i < kWords + 2; ++i) around[i] = by & 2 ? around[i + 2] : around[i];
    FASTGEMM_UNROLL
    for (int i = 0; i < kWords + 1; ++i) around[i] = by & 1 ? around[i + 1] : around[i];
    FASTGEMM_UNROLL
    for (int i = 0; i < kWords; ++i)
      words[i] = misaligned_ % kPerWord == 0 ? around[i] : __byte_perm(around[i], around[i + 1], 0x5432);
  }

  __device__ __forceinline__ void store(const uint32_t (&words)[kWords], int unit) const {
    uint32_t planes[Scheme::kPlanes][4];
    Scheme::cut(words, planes);
    unsigned char* const to = to_ + int64_t(unit / kStageUnits) * (Scheme::kPlanes * plane_bytes_) +
                              unit % kStageUnits * (s_.tile_side * 16);
    FASTGEMM_UNROLL
    for (int p = 0; p < Scheme::kPlanes; ++p)
      store_vector(to + p * plane_bytes_,
                   Vector<uint32_t, 4>{{planes[p][0], planes[p][1], planes[p][2], planes[p][3]}});
  }

  const Source<T>& s_;
  int lane_, warp_, row_, plane_bytes_;
  int misaligned_;  // elements from the last multiple of 16 bytes to the begin of the row
  const T* from_;
  unsigned char* to_;
};

// Computes the magnitudes of a whole row from those of the block's threads. Lane i has the same row in every
// warp, so the warps' values are combined lane by lane.
template <int group>
__device__ __forceinline__ Magnitudes magnitudes_of_rows(Magnitudes mine) {
  FASTGEMM_SHARED uint32_t largest[kMostCutThreads / 32][32], smallest_less_1[kMostCutThreads / 32][32];
  FASTGEMM_UNROLL
  for (int lanes = group; lanes < 32; lanes *= 2)
    mine.add({__shfl_xor_sync(0xffffffffu, mine.largest, lanes),
              __shfl_xor_sync(0xffffffffu, mine.smallest_less_1, lanes)});
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  largest[warp][lane] = mine.largest, smallest_less_1[warp][lane] = mine.smallest_less_1;
  __syncthreads();
  const int warps = int(blockDim.x) / 32;
  for (int w = 0; w < warps; ++w) mine.add({largest[w][lane], smallest_less_1[w][lane]});
  return mine;
}

// Whether `mine` is true in all threads of the block.
__device__ __forceinline__ bool true_of_all(bool mine) {
  FASTGEMM_SHARED uint32_t of_warp[kMostCutThreads / 32];
  const int lane = int(threadIdx.x) % 32;
  const bool here = __all_sync(0xffffffffu, mine);
  if (lane == 0) of_warp[threadIdx.x / 32] = here;
  __syncthreads();
  return __all_sync(0xffffffffu, lane >= int(blockDim.x) / 32 || of_warp[lane] != 0);
}

template <class Scheme, bool along_k, int words, int group>
__device__ __forceinline__ void cut_rows(const Source<typename Scheme::Operand>& s, int matrix, int block) {
  const RowCutter<Scheme, along_k, words, group> cutter(s, matrix, block);
  if constexpr (Scheme::kScaling == Scaling::none) {
    cutter.cut(1.f);
  } else {
    constexpr bool kAll = Scheme::kScaling == Scaling::all_rows;
    float scale = 1.f;
    bool any = false;
    FASTGEMM_NO_UNROLL
    for (int pass = 0; pass < 2; ++pass) {
      const Magnitudes magnitudes = cutter.cut(scale, !kAll || pass == 1);
      if (pass == 1) break;
      if constexpr (!kAll) {
        if (true_of_all(Scheme::needs_no_scale(magnitudes))) break;
      }
      scale = Scheme::scale_of(magnitudes_of_rows<group>(magnitudes));
      any = __any_sync(0xffffffffu, scale != 1.f);
      if (!kAll && !any) break;
    }
    if (threadIdx.x >= group) return;
    const int64_t row = int64_t(matrix) * s.rows() + cutter.row();
    s.unscale[row] = 1.f / scale;
    if constexpr (group == kRowGroup) {
      if (threadIdx.x == 0) s.scaled[row / kRowGroup] = any;
    }
  }
}

template <class Scheme, int words, int group = kRowGroup>
__global__ void __launch_bounds__(kCutThreads<words>, words == kManyWords ? 3 : 1)
    cut_kernel(const __grid_constant__ CutArguments<Scheme> g) {
  launch_dependents();
  if (blockIdx.x == 0)
    for (int i = int(threadIdx.x); i < g.flag_count; i += int(blockDim.x)) g.flags[i] = 0;
  const bool is_a = int(blockIdx.x) < g.blocks_a;
  const Source<typename Scheme::Operand>& s = is_a ? g.a : g.b;
  const int index = int(blockIdx.x) - (is_a ? 0 : g.blocks_a);
  const int matrix = index / s.blocks(group), block = index % s.blocks(group);
  if constexpr (!Scheme::Tiles::kEvery) {  // skips rows that no computed tile needs
    const int row = min(block * kRowGroup, s.side - 1);
    if (true_of_all(!g.tiles.finds_tile(is_a, row, is_a ? g.b.side : g.a.side))) return;
    __syncthreads();
  }
  if (s.along_k)
    cut_rows<Scheme, true, words, group>(s, matrix, block);
  else
    cut_rows<Scheme, false, words, group>(s, matrix, block);
}

// Describes an operand and allocates its planes.
template <class Scheme, class T>
Source<T> make_source(const Side<T>& from, int matrices, int tile_side, Context& context) {
  Source<T> s{from.data,      from.side_stride, from.k_stride, from.batch_stride,
              int(from.side), int(from.k),      tile_side};
  s.tiles = int(ceil_div(from.side, tile_side)), s.stages = int(ceil_div(from.k, Scheme::kStageK));
  s.along_k = s.k == 1 ? s.side_stride != 1 : s.k_stride == 1;
  if (s.k == 1) s.k_stride = 1;
  const size_t rows = size_t(matrices) * s.rows();
  s.images = static_cast<unsigned char*>(context.allocate(
      rows * s.stages * Scheme::kStageK * Scheme::kPlanes * sizeof(typename Scheme::Element)));
  if constexpr (Scheme::kScaling != Scaling::none) {
    s.unscale = static_cast<float*>(context.allocate(rows * sizeof(float)));
    s.scaled = static_cast<uint32_t*>(context.allocate(rows / kRowGroup * sizeof(uint32_t)));
  }
  return s;
}

}  // namespace fastgemm::FASTGEMM_TARGET::planes
