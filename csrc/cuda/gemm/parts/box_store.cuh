// How a warp's rows of a wgmma tile reach C, while the tensor cores go on.
//
// A lane holds pairs of neighbouring columns, so that plain stores would fill 16 bytes of a row at a time,
// half a sector. Here the rows go through boxes in shared memory, 16 rows of 128 bytes, that the tensor
// memory accelerator stores asynchronously. And most of them go there late: rounded, a tile takes half the
// registers of its sums, which are free for the next tile as soon as that is done. The boxes follow between
// the first products of the next tile. (bf16 at 4096 and 8192: 5 % faster than storing all boxes before
// them.)
//
// Rows of C that do not begin at multiples of 16 bytes cannot be stored so. Then warps that have nothing else
// to do take the boxes and store them row by row, a line at a time.
//
// Each warp has boxes of its own, so no warp waits for another.
//
// A warp's 16 rows may be rows of C in another order, or columns of C: then it holds C^T.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kWarpRows = 16, kBoxBytes = kWarpRows * 128;
inline constexpr int kBoxRegisters = kBoxBytes / 32 / 4;  // of a lane

// Which of the warp's rows lane / 4 + 8 * half of the instruction is.
struct InOrder {
  __device__ __forceinline__ static constexpr int row(int group, int half) { return group + 8 * half; }
};

// One box that the hardware or another warp reads, one to write meanwhile.
struct alignas(1024) StagingBoxes {
  unsigned char box[2][kBoxBytes];  // (16, 128 bytes), swizzled
};
// Where another warp reads them: full, empty.
struct BoxBarriers {
  Barrier full[2], empty[2];
};

// A box of elements of Out, which have 2 or 4 bytes: of C, (16, 128 bytes), or transposed (32, 64 bytes).
template <class Out, bool transposed>
struct BoxShape {
  static constexpr Swizzle kSwizzle = transposed ? Swizzle::bytes64 : Swizzle::bytes128;
  static constexpr int kColumns = int(kSwizzle) / int(sizeof(Out)), kRows = kBoxBytes / int(kSwizzle);
  static_assert(!transposed || kColumns == kWarpRows);
};

// Where a warp's first box goes.
struct RowsPlace {
  int row, column, plane;  // of C
};

// C, where its rows begin anywhere.
struct ResultRows {
  void* data;  // null: boxes can be stored
  int64_t row_stride, batch_stride;
  int m, n;
};

// Stores a box by the lanes of a warp, each a word of a row. Rows come by turns, first those of one parity,
// then those of the other: words of C throughout, or 16-bit elements that begin in the middle of a word
// throughout. There words are made of halves of two, and the first and the last element are left over. (Few
// instructions matter: three warps are to keep up with the tensor cores.)
template <class Out, class Shape>
__device__ __forceinline__ void store_rows(const unsigned char* box, const ResultRows& out,
                                           const RowsPlace& at) {
  constexpr int kSize = sizeof(Out), kRowBytes = int(Shape::kSwizzle), kLanes = kRowBytes / 4;
  constexpr int kAtOnce = 32 / kLanes, kHalf = Shape::kRows / kAtOnce / 2;
  const int lane = fresh_lane(), byte = lane % kLanes * 4;
  const int end = min(out.n - at.column, Shape::kColumns) * kSize;  // of a row, in bytes
  if (end <= 0) return;
  const int64_t stride = out.row_stride * kSize, step = 2 * kAtOnce * stride;
  FASTGEMM_NO_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int first = lane / kLanes + half * kAtOnce, rows = out.m - at.row - first;
    unsigned char* to = static_cast<unsigned char*>(out.data) + (at.row + first) * stride + byte +
                        (at.plane * out.batch_stride + at.column) * kSize;
    uint32_t value[kHalf];
    FASTGEMM_UNROLL
    for (int i = 0; i < kHalf; ++i)
      value[i] = load_vector<uint32_t>(
          box + swizzled<Shape::kSwizzle>(uint32_t((first + 2 * i * kAtOnce) * kRowBytes + byte)));
    const auto store = [&](unsigned char* row, auto&& element) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kHalf; ++i, row += step)
        if (2 * i * kAtOnce < rows) store_vector(row, element(value[i]));
    };
    const auto low = [](uint32_t word) { return uint16_t(word); };
    if (kSize == 4 || is_aligned(to, 4)) {
      if (byte + 4 <= end)
        store(to, [](uint32_t word) { return word; });
      else if (byte < end)
        store(to, low);
      continue;
    }
    if (byte == 0) store(to, low);
    FASTGEMM_UNROLL
    for (int i = 0; i < kHalf; ++i)
      value[i] = __byte_perm(value[i], __shfl_down_sync(0xffffffffu, value[i], 1), 0x5432);
    if (byte + 6 <= end)
      store(to + 2, [](uint32_t word) { return word; });
    else if (byte + 4 <= end)
      store(to + 2, low);
  }
}

// A box in registers, and its way to shared memory and from there, in pieces of 8 columns of the sums. Eight
// 16-byte units in eight different groups of banks at a time: 16-bit elements meet no conflicts.
template <class Out, class Rows, bool transposed>
struct Box {
  static constexpr int kPieces = kBoxRegisters / 4, kPacked = 4 / int(sizeof(Out));
  static constexpr int kSums = kBoxRegisters * kPacked;  // of a lane
  using Shape = BoxShape<Out, transposed>;
  static_assert(kPacked == 1 || (std::is_same_v<Rows, InOrder> && !transposed));
  uint32_t bits[kPieces][4];

  // of(sum, held) for the sums of box `index`; held() is what the box holds in their place.
  template <class Acc, int R, class Of>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int index, Of&& of) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxRegisters; ++i) {
      uint32_t& word = bits[i / 4][i % 4];
      Acc value[kPacked];
      FASTGEMM_UNROLL
      for (int j = 0; j < kPacked; ++j)
        value[j] = of(sum[index * kSums + i * kPacked + j], [&] { return element(word, j); });
      if constexpr (kPacked == 2)
        word = narrow_pair<Out>(value[0], value[1]);
      else if constexpr (std::is_same_v<Acc, float>)
        word = __float_as_uint(value[0]);
      else
        word = value[0];
    }
  }

  __device__ __forceinline__ void write(unsigned char* box) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      if constexpr (kPacked == 2) {
        store_matrices(box + offset_of_rows(i), bits[i]);
      } else {
        FASTGEMM_UNROLL
        for (int j = 0; j < 2; ++j)
          store_vector(box + offset_of_pair(i, j),
                       Vector<uint32_t, 2>{{bits[i][first(j)], bits[i][second(j)]}});
      }
    }
  }
  __device__ __forceinline__ void read(const unsigned char* box) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      if constexpr (kPacked == 2) {
        load_matrices(bits[i], box + offset_of_rows(i));
      } else {
        FASTGEMM_UNROLL
        for (int j = 0; j < 2; ++j) {
          const auto pair = load_vector<Vector<uint32_t, 2>>(box + offset_of_pair(i, j));
          bits[i][first(j)] = pair[0], bits[i][second(j)] = pair[1];
        }
      }
    }
  }

 private:
  // Of a row of the four matrices of piece i.
  __device__ __forceinline__ static uint32_t offset_of_rows(int i) {
    const int lane = fresh_lane();
    return offset_of(lane % 16 * 128 + lane / 16 * 16, i * 32);
  }
  // Registers of a piece that are neighbours in a row of C, and where they lie.
  __device__ __forceinline__ static constexpr int first(int j) { return transposed ? j : 2 * j; }
  __device__ __forceinline__ static constexpr int second(int j) { return first(j) + (transposed ? 2 : 1); }
  __device__ __forceinline__ static uint32_t offset_of_pair(int i, int j) {
    const int lane = fresh_lane(), row = Rows::row(lane / 4, transposed ? 0 : j), columns = lane % 4 * 2;
    if constexpr (transposed) return offset_of(columns * 64 + row * 4, (8 * i + j) * 64);
    return offset_of(row * 128 + columns * 4, 8 * i * 4);
  }
  // Two offsets without a common bit: a lane's, and one known to the compiler, which then costs one XOR.
  __device__ __forceinline__ static uint32_t offset_of(int lanes, int constant) {
    return swizzled<Shape::kSwizzle>(uint32_t(lanes)) ^ swizzled<Shape::kSwizzle>(uint32_t(constant));
  }
  __device__ __forceinline__ static auto element(uint32_t word, int j) {
    if constexpr (kPacked == 2)
      return widen(Out{uint16_t(word >> 16 * j)});
    else if constexpr (std::is_same_v<Out, float>)
      return __uint_as_float(word);
    else
      return word;
  }
};

// The two boxes of a warp and their way to C: `out` maps it in boxes; where it is null, the warp that waits
// at `barriers` stores them.
class BoxStore {
 public:
  __device__ __forceinline__ BoxStore(StagingBoxes& staging, BoxBarriers& barriers, const TensorMap* out)
      : staging_(staging), barriers_(barriers), out_(out), elected_(elect_one()) {}

  // Box `index` of a row of boxes, or transposed of a column: 0, 1, ... in turn, an even number of them.
  template <class Out, class Rows, bool transposed>
  __device__ __forceinline__ void store(const Box<Out, Rows, transposed>& box, int index,
                                        const RowsPlace& to) {
    using Shape = BoxShape<Out, transposed>;
    unsigned char* const shared = staging_.box[index % 2];
    if (out_ != nullptr)
      wait_stores_read<1>();  // by the elected lane: of its stores only the last may still read
    else
      wait_phase(&barriers_.empty[index % 2], phase_);
    __syncwarp();
    box.write(shared);
    fence_async_shared();
    __syncwarp();
    if (index % 2 == 1) phase_ ^= 1;
    if (!elected_) return;
    if (out_ == nullptr) return arrive(&barriers_.full[index % 2]);
    store_box(out_, shared, to.column + (transposed ? 0 : index * Shape::kColumns),
              to.row + (transposed ? index * Shape::kRows : 0), to.plane);
    commit_stores();
  }

 private:
  StagingBoxes& staging_;
  BoxBarriers& barriers_;
  const TensorMap* out_;
  bool elected_;
  uint32_t phase_ = 1;  // a fresh box counts as emptied
};

// A tile of R sums a lane on its way to C. The last boxes, all of 16-bit results and half of others, are kept
// in 64 registers until they can be stored between products; only then place_of(tile) says where they go,
// because the divisions that takes would be in the way before.
template <class B, int R, class PlaceOf>
class HeldBoxes {
 public:
  static constexpr int kPacked = B::kPacked;
  static constexpr int kBoxes = R / B::kSums, kHeld = kBoxes < 4 ? kBoxes : 4;

  __device__ __forceinline__ HeldBoxes(const BoxStore& store, const PlaceOf& place_of)
      : store_(store), place_of_(place_of) {}

  // of(sum) for the sums of a tile.
  template <class Acc, class Of>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int tile, Of&& of) {
    hold(tile);
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      box_[i].take(sum, i, [&](Acc x, auto&&) { return of(x); });
      if (i < kFirst) store_.store(box_[i], i, to_);
    }
  }
  // of(sum, element of c). Boxes of c come in twos: next_two() waits for them and says where they are, done()
  // says that they have been read.
  template <class Acc, class Of, class NextTwo, class Done>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int tile, Of&& of, NextTwo&& next_two,
                                       Done&& done) {
    hold(tile);
    const unsigned char* two = nullptr;
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      if (i % 2 == 0) two = next_two();
      box_[i].read(two + i % 2 * kBoxBytes);
      box_[i].take(sum, i, [&](Acc x, auto&& held) { return of(x, held()); });
      if (i % 2 == 1) done();
      if (i < kFirst) store_.store(box_[i], i, to_);
    }
  }
  // Stores one of those held, if there are any: i = 0, 1, ... kHeld - 1 in turn.
  __device__ __forceinline__ void store(int i) {
    if (tile_ >= 0) {
      if (kFirst == 0 && i == 0) to_ = place_of_(tile_);
      store_.store(box_[kFirst + i], kFirst + i, to_);
    }
    if (i == kHeld - 1) tile_ = -1;
  }
  __device__ __forceinline__ void store_all() {
    FASTGEMM_UNROLL
    for (int i = 0; i < kHeld; ++i) store(i);
  }

 private:
  static constexpr int kFirst = kBoxes - kHeld;
  static_assert(kFirst % 2 == 0 && kHeld % 2 == 0, "staging boxes alternate");

  __device__ __forceinline__ void hold(int tile) {
    tile_ = tile;
    if (kFirst > 0) to_ = place_of_(tile);
  }

  BoxStore store_;
  PlaceOf place_of_;
  B box_[kBoxes];
  RowsPlace to_;
  int tile_ = -1;  // none
};

}  // namespace fastgemm::FASTGEMM_TARGET
