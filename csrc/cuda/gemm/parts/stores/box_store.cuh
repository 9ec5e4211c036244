// A store: a warp's rows of a tile go to C while the tensor cores compute the next tile. Contract:
// HeldBoxes::take(sum, ...) rounds a tile's sums into registers of its own, after which `sum` is free.
// store(i) stores one of these boxes between the products of the next tile. Each warp has staging boxes of
// its own and waits for no other warp.
//
//   tensor cores   | tile 0 .......... | tile 1 .......... |
//   take           |                   |T                  |T      rounds to half the registers
//   store          |                   | 0 1 2 3           | 0 1   boxes, between the first products
//
// Most boxes are stored late: a rounded tile takes half the registers of its sums, and the registers of the
// sums are free for the next tile at once. That is faster than storing all boxes first. The TMA stores boxes
// asynchronously; where it cannot, spare warps do (box_rows.cuh).
#pragma once

#include "cuda/gemm/parts/stores/box.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Double buffering: the TMA or another warp reads one box while this warp writes the other one.
struct alignas(1024) StagingBoxes {
  unsigned char box[2][kBoxBytes];  // (16, 128 bytes), swizzled
};
// The mbarriers of the two boxes, used where another warp reads them.
struct BoxBarriers {
  Barrier full[2], empty[2];
};

// Stores boxes to C through a warp's two staging boxes. `out` is the TMA descriptor of C. Where it is null,
// another warp waits at `barriers` and stores the boxes.
class BoxStore {
 public:
  __device__ __forceinline__ BoxStore(StagingBoxes& staging, BoxBarriers& barriers, const TensorMap* out)
      : staging_(staging), barriers_(barriers), out_(out), elected_(elect_one()) {}

  // Stores box `index` of a row of boxes (of a column of boxes if transposed). The indices are 0, 1, ... in
  // turn. Staging boxes alternate, also from one tile to the next: if a tile has an `odd` number of boxes,
  // the next tile begins with the other staging box.
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
  uint32_t phase_ = 1;  // a new box counts as empty; with `odd`, 1 + the boxes stored so far
};

// A tile on its way to C; a lane has R of its sums. The last HELD boxes are held in 16 registers each until
// they are stored between products. Four boxes are all boxes of 16-bit results, and half of those of wider
// results. If all boxes are held, place_of(tile) is evaluated when the first one is stored, because its
// divisions would delay the next tile's first products. Store is BoxStore or MirroredStore.
template <class B, int R, class PlaceOf, class Store = BoxStore, int HELD = 4>
class HeldBoxes {
 public:
  static constexpr int kPerRegister = B::kPerRegister;
  static constexpr int kBoxes = R / B::kSums, kHeld = kBoxes < HELD ? kBoxes : HELD;

  __device__ __forceinline__ HeldBoxes(const Store& store, const PlaceOf& place_of)
      : store_(store), place_of_(place_of) {}

  // Rounds of(sum) for all sums of a tile into boxes, stores the first boxes, and holds the last four.
  template <class Acc, class Of>
  __device__ __forceinline__ void take(const Acc (&sum)[R], int tile, Of&& of) {
    hold(tile);
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxes; ++i) {
      box_[i].take(sum, i, [&](Acc x, auto&&) { return of(x); });
      if (i < kFirst) store_.template store<kOdd>(box_[i], i, to_);
    }
  }
  // The same for of(sum, element of c). Boxes of c come in pairs; with an odd number of boxes, the second of
  // the last pair is ignored. next_two() waits for a pair and returns its address, done() releases it.
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
