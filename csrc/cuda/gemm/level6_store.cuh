// How a warp's rows of a wgmma tile reach C, while the tensor cores go on.
//
// A lane holds pairs of neighbouring columns, so that plain stores would fill 16 bytes of a row at a time,
// half a sector. Here the rows go through boxes in shared memory, 16 rows of 128 bytes, that the tensor
// memory accelerator stores asynchronously. And most of them go there late: rounded, a tile takes half the
// registers of its sums, which are free for the next tile as soon as that is done. The boxes follow between
// the first products of the next tile. (bf16 at 4096 and 8192: 5 % faster than storing all boxes before
// them.)
//
// Each warp has boxes of its own, so no warp waits for another.
//
// A warp's 16 rows may be rows of C in another order, or columns of C: then it holds C^T.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kWarpRows = 16, kBoxBytes = kWarpRows * 128;
inline constexpr int kBoxRegisters = kBoxBytes / 32 / 4;  // of a lane

// Which of the warp's rows lane / 4 + 8 * half of the instruction is.
struct InOrder {
  __device__ __forceinline__ static constexpr int row(int group, int half) { return group + 8 * half; }
};

// One box that the hardware reads, one to write meanwhile.
struct alignas(1024) StagingBoxes {
  unsigned char box[2][kBoxBytes];  // (16, 128 bytes), swizzled
};

// A box of elements of Out, which have 2 or 4 bytes: of C, (16, 128 bytes), or transposed (32, 64 bytes).
template <class Out, bool transposed>
struct BoxShape {
  static constexpr Swizzle kSwizzle = transposed ? Swizzle::bytes64 : Swizzle::bytes128;
  static constexpr int kColumns = int(kSwizzle) / int(sizeof(Out)), kRows = kBoxBytes / int(kSwizzle);
  static_assert(!transposed || kColumns == kWarpRows);
};

// One in registers, and its way to shared memory, without bank conflicts: eight 16-byte units in eight
// different groups of banks at a time. (Transposed: two at a time in each.)
template <class Out, class Rows, bool transposed>
struct Box {
  static constexpr int kSums = kBoxRegisters * 4 / int(sizeof(Out));  // of a lane
  using Shape = BoxShape<Out, transposed>;
  uint32_t bits[kBoxRegisters];

  // alpha times the sums of box `index` of a row of boxes.
  template <class Acc, int R>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int index, Acc alpha) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxRegisters; ++i) {
      if constexpr (sizeof(Out) == 2)
        bits[i] =
            narrow_pair<Out>(alpha * sum[index * kSums + 2 * i], alpha * sum[index * kSums + 2 * i + 1]);
      else if constexpr (std::is_same_v<Acc, float>)
        bits[i] = __float_as_uint(alpha * sum[index * kSums + i]);
      else
        bits[i] = alpha * sum[index * kSums + i];
    }
  }

  __device__ __forceinline__ void write(unsigned char* box) const {
    const int lane = int(threadIdx.x) % 32, group = lane / 4, pair = lane % 4;
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxRegisters; i += 4) {
      if constexpr (sizeof(Out) == 2) {
        static_assert(std::is_same_v<Rows, InOrder> && !transposed);
        const uint32_t four[] = {bits[i], bits[i + 1], bits[i + 2], bits[i + 3]};
        const uint32_t offset = uint32_t(lane % 16 * 128 + i * 8 + lane / 16 * 16);
        store_matrices(box + swizzled<Shape::kSwizzle>(offset), four);
      } else {
        // Two rows of C, or two rows of C^T that are neighbours.
        FASTGEMM_UNROLL
        for (int j = 0; j < 2; ++j) {
          const int row = transposed ? 2 * i + 2 * pair + j : Rows::row(group, j);
          const int column = transposed ? Rows::row(group, 0) : 2 * i + 2 * pair;
          const int first = transposed ? i + j : i + 2 * j, second = first + (transposed ? 2 : 1);
          store_vector(box + swizzled<Shape::kSwizzle>(uint32_t(row * Shape::kColumns + column) * 4),
                       Vector<uint32_t, 2>{{bits[first], bits[second]}});
        }
      }
    }
  }
};

// Where a warp's first box goes.
struct RowsPlace {
  int row, column, plane;  // of C
};

// The two boxes of a warp and what stores them: `out` maps C in boxes.
class BoxStore {
 public:
  __device__ __forceinline__ BoxStore(StagingBoxes& staging, const TensorMap* out)
      : staging_(staging), out_(out), elected_(elect_one()) {}

  // Box `index` of a row of boxes, or transposed of a column.
  template <class B>
  __device__ __forceinline__ void store(const B& box, int index, const RowsPlace& to) const {
    wait_stores_read<1>();  // by the elected lane: of its stores only the last may still read
    store_through(staging_.box[index % 2], box, index, to);
  }

  // Through a box that nothing reads.
  template <class Out, class Rows, bool transposed>
  __device__ __forceinline__ void store_through(unsigned char* shared, const Box<Out, Rows, transposed>& box,
                                                int index, const RowsPlace& to) const {
    using Shape = BoxShape<Out, transposed>;
    __syncwarp();
    box.write(shared);
    fence_async_shared();
    __syncwarp();
    if (elected_) {
      store_box(out_, shared, to.column + (transposed ? 0 : index * Shape::kColumns),
                to.row + (transposed ? index * Shape::kRows : 0), to.plane);
      commit_stores();
    }
  }

  // The first boxes of the sums.
  template <class B, int boxes, class Acc, int R>
  __device__ __forceinline__ void store_first(const Acc (&sum)[R], Acc alpha, const RowsPlace& to) const {
    FASTGEMM_UNROLL
    for (int i = 0; i < boxes; ++i) {
      B box;
      box.take(sum, i, alpha);
      store(box, i, to);
    }
  }

 private:
  StagingBoxes& staging_;
  const TensorMap* out_;
  bool elected_;
};

// A tile of R sums a lane on its way to C. The last boxes, all of 16-bit results and half of others, are kept
// in 64 registers until they can be stored between products.
template <class B, int R>
class HeldBoxes {
 public:
  static constexpr int kBoxes = R / B::kSums, kHeld = kBoxes < 4 ? kBoxes : 4;

  __device__ __forceinline__ explicit HeldBoxes(const BoxStore& store) : store_(store) {}

  template <class Acc>
  __device__ __forceinline__ void take(const Acc (&sum)[R], Acc alpha, const RowsPlace& to) {
    store_.template store_first<B, kFirst>(sum, alpha, to);
    FASTGEMM_UNROLL
    for (int i = 0; i < kHeld; ++i) held_[i].take(sum, kFirst + i, alpha);
    to_ = to, any_ = true;
  }
  // Stores one of those held, if there are any: i = 0, 1, ... kHeld - 1 in turn.
  __device__ __forceinline__ void store(int i) {
    if (any_) store_.store(held_[i], kFirst + i, to_);
    if (i == kHeld - 1) any_ = false;
  }
  // Stores all of them, and waits until shared memory has been read. `shared` has room for kHeld.
  __device__ __forceinline__ void store_all(unsigned char* shared) {
    if (any_) {
      FASTGEMM_UNROLL
      for (int i = 0; i < kHeld; ++i)
        store_.store_through(shared + i * kBoxBytes, held_[i], kFirst + i, to_);
    }
    wait_stores_read<0>();
  }

 private:
  static constexpr int kFirst = kBoxes - kHeld;
  static_assert(kFirst % 2 == 0 && kHeld % 2 == 0, "staging boxes alternate");
  BoxStore store_;
  B held_[kHeld];
  RowsPlace to_;
  bool any_ = false;
};

}  // namespace fastgemm::FASTGEMM_TARGET
