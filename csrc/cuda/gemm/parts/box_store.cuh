// The epilogue of wgmma tiles: stores a warp's rows of a tile to C while the tensor cores compute the next
// tile. Contract: HeldBoxes::take(sum, ...) rounds a tile's sums into registers of its own, after which `sum`
// is free. store(i) stores one of these boxes between the products of the next tile. Each warp has staging
// boxes of its own and waits for no other warp.
//
//   registers (wgmma layout)       staging box in shared memory, swizzled         C
//   row lane/4:   c0 c1 ...        +--------------------------+  128 bytes
//   row lane/4+8: c0 c1 ...  -->   | 16-byte unit u of row r  |     -->     TMA store, asynchronous,
//                                  | lies at u ^ (r % 8)      |  16 rows    or rows by spare warps
//                                  +--------------------------+
//
//   tensor cores   | tile 0 .......... | tile 1 .......... |
//   take           |                   |T                  |T      rounds to half the registers
//   store          |                   | 0 1 2 3           | 0 1   boxes, between the first products
//
// A lane holds pairs of neighbouring columns, so plain stores would fill only 16 bytes of a row at a time,
// half a sector. Boxes are stored as whole lines. Most boxes are stored late: a rounded tile takes half the
// registers of its sums, and the registers of the sums are free for the next tile at once. That is faster
// than storing all boxes first.
//
// The TMA cannot store rows of C that do not begin at multiples of 16 bytes. Then warps that have no other
// work store the boxes row by row, a line at a time.
//
// A warp's 16 rows may be rows of C in another order (parts/fragments.cuh), or columns of C where the
// kernel computes C^T.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kWarpRows = 16, kBoxBytes = kWarpRows * 128;
inline constexpr int kBoxRegisters = kBoxBytes / 32 / 4;  // per lane

// Which of the warp's 16 rows the instruction's row lane / 4 + 8 * half computes.
struct InOrder {
  __device__ __forceinline__ static constexpr int row(int group, int half) { return group + 8 * half; }
};

// Double buffering: the TMA or another warp reads one box while this warp writes the other one.
struct alignas(1024) StagingBoxes {
  unsigned char box[2][kBoxBytes];  // (16, 128 bytes), swizzled
};
// The mbarriers of the two boxes, used where another warp reads them.
struct BoxBarriers {
  Barrier full[2], empty[2];
};

// The shape of a box of elements of Out, 2 or 4 bytes each: (16, 128 bytes) of C, or transposed (32, 64
// bytes).
template <class Out, bool transposed>
struct BoxShape {
  static constexpr Swizzle kSwizzle = transposed ? Swizzle::bytes64 : Swizzle::bytes128;
  static constexpr int kColumns = int(kSwizzle) / int(sizeof(Out)), kRows = kBoxBytes / int(kSwizzle);
  static_assert(!transposed || kColumns == kWarpRows);
};

// The place of a box in C.
struct RowsPlace {
  int row, column, plane;  // plane: the matrix of the batch
};

// Describes a C whose rows may begin at any address.
struct ResultRows {
  void* data;  // null where the TMA stores the boxes
  int64_t row_stride, batch_stride;
  int m, n;
};

// Stores a box by a warp: each lane stores a 32-bit word of a row. Rows are stored in two groups, even and
// odd ones, because all rows of a group are aligned in the same way: either words of C are aligned to words
// of the box, or rows of 16-bit elements begin in the middle of a word. In the latter case each word is
// assembled from the halves of two words, and the first and the last element are stored alone. The code is
// short, because three warps have to keep up with the tensor cores.
template <class Out, class Shape>
__device__ __forceinline__ void store_rows(const unsigned char* box, const ResultRows& out,
                                           const RowsPlace& at) {
  constexpr int kSize = sizeof(Out), kRowBytes = int(Shape::kSwizzle), kLanes = kRowBytes / 4;
  constexpr int kAtOnce = 32 / kLanes, kHalf = Shape::kRows / kAtOnce / 2;
  const int lane = fresh_lane(), byte = lane % kLanes * 4;
  const int end = min(out.n - at.column, Shape::kColumns) * kSize;  // bytes of a row inside C
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

// A box in registers. write() and read() move it to shared memory and back, in pieces of 16 bytes per lane.
// Eight lanes at a time access 16-byte units in eight different groups of banks, so 16-bit elements have no
// bank conflicts.
template <class Out, class Rows, bool transposed>
struct Box {
  static constexpr int kPieces = kBoxRegisters / 4, kPerRegister = 4 / int(sizeof(Out));
  static constexpr int kSums = kBoxRegisters * kPerRegister;  // per lane
  using Shape = BoxShape<Out, transposed>;
  static_assert(kPerRegister == 1 || (std::is_same_v<Rows, InOrder> && !transposed));
  uint32_t bits[kPieces][4];

  // Sets each element of the box to of(sum, held). held() returns the element that the box holds at that
  // place.
  template <class Acc, int R, class Of>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int index, Of&& of) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxRegisters; ++i) {
      uint32_t& word = bits[i / 4][i % 4];
      Acc value[kPerRegister];
      FASTGEMM_UNROLL
      for (int j = 0; j < kPerRegister; ++j)
        value[j] = of(sum[index * kSums + i * kPerRegister + j], [&] { return element(word, j); });
      if constexpr (kPerRegister == 2)
        word = round_pair<Out>(value[0], value[1]);
      else if constexpr (std::is_same_v<Acc, float>)
        word = __float_as_uint(value[0]);
      else
        word = value[0];
    }
  }

  __device__ __forceinline__ void write(unsigned char* box) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < kPieces; ++i) {
      if constexpr (kPerRegister == 2) {
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
      if constexpr (kPerRegister == 2) {
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
  // The offset of this lane's row in the four 8 x 8 matrices of piece i.
  __device__ __forceinline__ static uint32_t offset_of_rows(int i) {
    const int lane = fresh_lane();
    return offset_of(lane % 16 * 128 + lane / 16 * 16, i * 32);
  }
  // Which registers of a piece are neighbours in a row of the box, and the offset of such a pair.
  __device__ __forceinline__ static constexpr int first(int j) { return transposed ? j : 2 * j; }
  __device__ __forceinline__ static constexpr int second(int j) { return first(j) + (transposed ? 2 : 1); }
  __device__ __forceinline__ static uint32_t offset_of_pair(int i, int j) {
    const int lane = fresh_lane(), row = Rows::row(lane / 4, transposed ? 0 : j), columns = lane % 4 * 2;
    if constexpr (transposed) return offset_of(columns * 64 + row * 4, (8 * i + j) * 64);
    return offset_of(row * 128 + columns * 4, 8 * i * 4);
  }
  // Adds a part that depends on the lane and a part known at compile time. They share no bit, so the swizzle
  // of the sum is the XOR of their swizzles, and the constant part costs one XOR.
  __device__ __forceinline__ static uint32_t offset_of(int lanes, int constant) {
    return swizzled<Shape::kSwizzle>(uint32_t(lanes)) ^ swizzled<Shape::kSwizzle>(uint32_t(constant));
  }
  __device__ __forceinline__ static auto element(uint32_t word, int j) {
    if constexpr (kPerRegister == 2)
      return widen(Out{uint16_t(word >> 16 * j)});
    else if constexpr (std::is_same_v<Out, float>)
      return __uint_as_float(word);
    else
      return word;
  }
};

// Stores boxes to C through a warp's two staging boxes. `out` is the TMA descriptor of C. Where it is null,
// another warp waits at `barriers` and stores the boxes.
class BoxStore {
 public:
  __device__ __forceinline__ BoxStore(StagingBoxes& staging, BoxBarriers& barriers, const TensorMap* out)
      : staging_(staging), barriers_(barriers), out_(out), elected_(elect_one()) {}

  // Stores box `index` of a row of boxes (of a column of boxes if transposed). The indices are 0, 1, ... in
  // turn. Staging boxes alternate; with an `odd` number of boxes a tile begins with the one that the tile
  // before did not use last.
  template <bool odd, class Out, class Rows, bool transposed>
  __device__ __forceinline__ void store(const Box<Out, Rows, transposed>& box, int index,
                                        const RowsPlace& to) {
    using Shape = BoxShape<Out, transposed>;
    const int turn = odd ? int((phase_ + 1) % 2) : index % 2;
    unsigned char* const shared = staging_.box[turn];
    if (out_ != nullptr)
      wait_stores_read<1>();  // only the last store, of the other box, may still be reading
    else
      wait_phase(&barriers_.empty[turn], odd ? (phase_ + 1) / 2 % 2 : phase_);
    __syncwarp();
    box.write(shared);
    fence_async_shared();
    __syncwarp();
    if (odd)
      ++phase_;
    else if (turn == 1)
      phase_ ^= 1;
    if (!elected_) return;
    if (out_ == nullptr) return arrive(&barriers_.full[turn]);
    store_box(out_, shared, to.column + (transposed ? 0 : index * Shape::kColumns),
              to.row + (transposed ? index * Shape::kRows : 0), to.plane);
    commit_stores();
  }

 private:
  StagingBoxes& staging_;
  BoxBarriers& barriers_;
  const TensorMap* out_;
  bool elected_;
  uint32_t phase_ = 1;  // a new box counts as empty; with `odd`: 1 + the number of boxes stored
};

// A tile on its way to C; a lane has R of its sums. The last four boxes (all boxes of 16-bit results, half of
// others) are held in 64 registers until they are stored between products. place_of(tile) is evaluated only
// then where all boxes are held, because its divisions would delay the next tile's first products. Store is
// BoxStore or MirroredStore.
template <class B, int R, class PlaceOf, class Store = BoxStore>
class HeldBoxes {
 public:
  static constexpr int kPerRegister = B::kPerRegister;
  static constexpr int kBoxes = R / B::kSums, kHeld = kBoxes < 4 ? kBoxes : 4;

  __device__ __forceinline__ HeldBoxes(const Store& store, const PlaceOf& place_of)
      : store_(store), place_of_(place_of) {}

  // Takes of(sum) for the sums of a tile: stores the first boxes, and holds the last four.
  template <class Acc, class Of>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int tile, Of&& of) {
    hold(tile);
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      box_[i].take(sum, i, [&](Acc x, auto&&) { return of(x); });
      if (i < kFirst) store_.template store<kOdd>(box_[i], i, to_);
    }
  }
  // Takes of(sum, element of c). Boxes of c come in pairs; with an odd number of boxes the second of the last
  // pair is ignored. next_two() waits for a pair and returns its address, done() releases it.
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
      if (i % 2 == 1 || i == kBoxes - 1) done();
      if (i < kFirst) store_.template store<kOdd>(box_[i], i, to_);
    }
  }
  // Stores held box i, if boxes are held. Called with i = 0, 1, ... kHeld - 1 in turn.
  __device__ __forceinline__ void store(int i) {
    if (tile_ >= 0) {
      if (kFirst == 0 && i == 0) to_ = place_of_(tile_);
      store_.template store<kOdd>(box_[kFirst + i], kFirst + i, to_);
    }
    if (i == kHeld - 1) tile_ = -1;
  }
  __device__ __forceinline__ void store_all() {
    FASTGEMM_UNROLL
    for (int i = 0; i < kHeld; ++i) store(i);
  }

 private:
  static constexpr int kFirst = kBoxes - kHeld;
  static constexpr bool kOdd = kBoxes % 2 != 0;

  __device__ __forceinline__ void hold(int tile) {
    tile_ = tile;
    if (kFirst > 0) to_ = place_of_(tile);
  }

  Store store_;
  PlaceOf place_of_;
  B box_[kBoxes];
  RowsPlace to_;
  int tile_ = -1;  // none
};

}  // namespace fastgemm::FASTGEMM_TARGET
