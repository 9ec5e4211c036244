// Stores boxes of the lower triangle of a symmetric C twice, the second time transposed, so that no pass has
// to copy one triangle to the other. Contract: that of BoxStore (box_store.cuh), for 16-bit results that the
// TMA can store.
//
//   box b, (16 rows, 64 columns)   C  +-----------+     below the diagonal   b, and turned t
//                                     |      t    |     on it                element by element, what lies
//                                     |      t    |                          above it is left out
//                                     | bbbb      |     above it             nothing
//                                     +-----------+
//
// stmatrix transposes matrices of 8 x 8 elements when it writes them to shared memory. The transposed box has
// 64 rows of 32 bytes. If the rows of C begin at multiples of 32 bytes, these are whole sectors. The sectors
// beside them are written by the warps that have the neighbouring rows.
#pragma once

#include "cuda/gemm/parts/stores/box_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A symmetric C (n, n): the TMA descriptor for its transposed boxes, and its address for single elements.
struct MirroredResult {
  TensorMap turned;
  void* data;
  int64_t row_stride, batch_stride;  // in elements
  int n;
};

inline constexpr Swizzle kTurnedSwizzle = Swizzle::bytes32;
inline constexpr int kTurnedRows = kBoxBytes / int(kTurnedSwizzle), kTurnedColumns = 16;

class MirroredStore {
 public:
  __device__ __forceinline__ MirroredStore(StagingBoxes& staging, const TensorMap* out,
                                           const MirroredResult& mirrored)
      : staging_(staging), out_(out), mirrored_(mirrored), elected_(elect_one()) {}

  // Stores box `index` of a row of boxes, and its mirror image.
  template <bool odd, class Out, class Rows, bool transposed>
  __device__ __forceinline__ void store(const Box<Out, Rows, transposed>& box, int index,
                                        const RowsPlace& to) {
    static_assert(sizeof(Out) == 2 && !transposed && std::is_same_v<Rows, InOrder>);
    constexpr int kColumns = 64;
    const int row = to.row, column = to.column + index * kColumns;
    if (column >= row + kWarpRows) return;
    if (column + kColumns > row) {
      wait_stores_read<1>();
      __syncwarp();
      box.write(staging_.box[0]);
      __syncwarp();
      return store_elements<Out>(staging_.box[0], row, column, to.plane);
    }
    send(
        0, [&](unsigned char* shared) { box.write(shared); },
        [&](const unsigned char* shared) { store_box(out_, shared, column, row, to.plane); });
    send(
        1, [&](unsigned char* shared) { write_turned(box.bits, shared); },
        [&](const unsigned char* shared) { store_box(&mirrored_.turned, shared, row, column, to.plane); });
  }

 private:
  template <class Write, class Send>
  __device__ __forceinline__ void send(int turn, Write&& write, Send&& send_box) {
    unsigned char* const shared = staging_.box[turn];
    wait_stores_read<1>();  // only the last store, of the other box, may still be reading
    __syncwarp();
    write(shared);
    fence_async_shared();
    __syncwarp();
    if (!elected_) return;
    send_box(shared);
    commit_stores();
  }

  // Piece i of a box holds four 8 x 8 matrices: the upper and the lower 8 rows of 8 columns, then those of
  // the next 8 columns.
  template <int pieces>
  __device__ __forceinline__ static void write_turned(const uint32_t (&bits)[pieces][4], unsigned char* box) {
    const int lane = fresh_lane();
    const int row = lane / 16 * 8 + lane % 8, unit = lane / 8 % 2;
    FASTGEMM_UNROLL
    for (int i = 0; i < pieces; ++i) {
      const uint32_t plain = uint32_t((16 * i + row) * int(kTurnedSwizzle) + unit * 16);
      store_matrices<4, true>(box + swizzled<kTurnedSwizzle>(plain), bits[i]);
    }
  }

  // Stores a box on the diagonal element by element from shared memory. This is a loop, because an unrolled
  // one would take longer to fetch than to run.
  template <class Out>
  __device__ __forceinline__ void store_elements(const unsigned char* box, int first_row, int first_column,
                                                 int plane) const {
    Out* const out = static_cast<Out*>(mirrored_.data) + plane * mirrored_.batch_stride;
    const int lane = fresh_lane(), rows = mirrored_.n - first_row, below = first_row - first_column;
    const auto element = [&](int row, int column) {
      return *reinterpret_cast<const Out*>(
          box + swizzled<Swizzle::bytes128>(uint32_t(row * 128 + column * int(sizeof(Out)))));
    };
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < 2 * kWarpRows; step += 2) {
      FASTGEMM_UNROLL
      for (int i = step; i < step + 2; ++i) {
        // Half a row of the box, and two columns of it for the mirror image.
        const int row = i / 2, column = i % 2 * 32 + lane, turned_row = lane % 16,
                  turned_column = 2 * i + lane / 16;
        if (row < rows && column <= row + below)
          out[(first_row + row) * mirrored_.row_stride + first_column + column] = element(row, column);
        if (turned_row < rows && turned_column < turned_row + below)
          out[(first_column + turned_column) * mirrored_.row_stride + first_row + turned_row] =
              element(turned_row, turned_column);
      }
    }
  }

  StagingBoxes& staging_;
  const TensorMap* out_;
  const MirroredResult& mirrored_;
  bool elected_;
};

}  // namespace fastgemm::FASTGEMM_TARGET
