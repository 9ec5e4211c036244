// Stores boxes of the lower triangle of a symmetric C twice, the second time turned, so that no pass has to
// copy one triangle to the other. Contract: as BoxStore (box_store.cuh), for 16-bit results that the TMA can
// store.
//
//   box b, (16 rows, 64 columns)   C  +-----------+     below the diagonal   b, and turned t
//                                     |      t    |     on it                element by element, what lies
//                                     |      t    |                          above it is left out
//                                     | bbbb      |     above it             nothing
//                                     +-----------+
//
// stmatrix turns matrices of 8 x 8 elements on their way to shared memory. The turned box has 64 rows of 32
// bytes, whole sectors where the rows of C begin with one; the warps with the rows of C above and below write
// their neighbours.
#pragma once

#include "cuda/gemm/parts/box_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Where a symmetric C lies: (n, n), the TMA descriptor of its turned boxes, and itself for elements.
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
    if (column + kColumns > row) return store_elements<Out>(box.bits, row, column, to.plane);
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
    wait_stores_read<1>();  // the elected lane's last store may still read the other box
    __syncwarp();
    write(shared);
    fence_async_shared();
    __syncwarp();
    if (!elected_) return;
    send_box(shared);
    commit_stores();
  }

  // Piece i of a box holds four matrices: 8 rows and the 8 below, of 8 columns, then the same of the next 8.
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

  template <class Out, int pieces>
  __device__ __forceinline__ void store_elements(const uint32_t (&bits)[pieces][4], int first_row,
                                                 int first_column, int plane) const {
    Out* const out = static_cast<Out*>(mirrored_.data) + plane * mirrored_.batch_stride;
    const int lane = fresh_lane();
    FASTGEMM_UNROLL
    for (int i = 0; i < 4 * pieces; ++i) {
      const int row = first_row + lane / 4 + i % 2 * 8;
      FASTGEMM_UNROLL
      for (int e = 0; e < 2; ++e) {
        const int column = first_column + i / 2 * 8 + lane % 4 * 2 + e;
        if (row >= mirrored_.n || column > row) continue;
        const Out x{uint16_t(bits[i / 4][i % 4] >> 16 * e)};
        out[row * mirrored_.row_stride + column] = x;
        out[column * mirrored_.row_stride + row] = x;
      }
    }
  }

  StagingBoxes& staging_;
  const TensorMap* out_;
  const MirroredResult& mirrored_;
  bool elected_;
};

}  // namespace fastgemm::FASTGEMM_TARGET
