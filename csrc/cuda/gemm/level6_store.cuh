// How a warp's rows of a wgmma tile reach C.
//
// A lane holds pairs of neighbouring columns, so that plain stores fill 16 bytes of a row at a time, half a
// sector. Here they go to a staging box in shared memory first, 16 rows of 128 bytes, and the tensor memory
// accelerator stores it, asynchronously: the warp goes on with the next box, and then with the next tile's
// products. Each warp has boxes of its own, so no warp waits for another.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/tma.cuh"
#include "cuda/device/vector.cuh"
#include "cuda/gemm/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kBoxRows = 16, kBoxBytes = kBoxRows * 128;

// One box being read by the hardware, one being written.
struct alignas(1024) StagingBoxes {
  unsigned char box[2][kBoxBytes];  // (16, 128 bytes), swizzled
};

template <class Out>
inline constexpr int kBoxColumns = 128 / int(sizeof(Out));

// alpha times the sums of columns [first, first + kBoxColumns) in a box. Eight 16-byte units in eight
// different groups of banks at a time: no conflicts.
template <class Out, class Acc, int R>
__device__ __forceinline__ void write_box(unsigned char* box, const Acc (&sum)[R], int first, Acc alpha) {
  const int lane = int(threadIdx.x) % 32;
  if constexpr (sizeof(Out) == 2) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxColumns<Out>; i += 16) {
      uint32_t packed[4];
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j) {
        const int at = (first + i) / 2 + 2 * j;
        packed[j] = narrow_pair<Out>(alpha * sum[at], alpha * sum[at + 1]);
      }
      const uint32_t offset = uint32_t(lane % 16 * 128 + i * 2 + lane / 16 * 16);
      store_matrices(box + swizzled<Swizzle::bytes128>(offset), packed);
    }
  } else {
    FASTGEMM_UNROLL
    for (int i = 0; i < kBoxColumns<Out>; i += 8) {
      FASTGEMM_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int at = (first + i) / 2 + 2 * half;
        const uint32_t offset = uint32_t((lane / 4 + 8 * half) * 128 + (i + lane % 4 * 2) * 4);
        store_vector(box + swizzled<Swizzle::bytes128>(offset),
                     Vector<Acc, 2>{{alpha * sum[at], alpha * sum[at + 1]}});
      }
    }
  }
}

// C = alpha * sum from `row`, `column` on: beta is 0, and `out` maps C in boxes (16, kBoxColumns).
template <class Out, class Acc, int R>
__device__ __forceinline__ void store_boxes(StagingBoxes& staging, const TensorMap* out, const Acc (&sum)[R],
                                            Acc alpha, int row, int column, int plane) {
  const bool elected = elect_one();
  FASTGEMM_UNROLL
  for (int first = 0; first < 2 * R; first += kBoxColumns<Out>) {
    unsigned char* const box = staging.box[first / kBoxColumns<Out> % 2];
    wait_stores_read<1>();  // by the elected lane: its last store but one has left this box
    __syncwarp();
    write_box<Out>(box, sum, first, alpha);
    fence_async_shared();
    __syncwarp();
    if (elected) {
      store_box(out, box, column + first, row, plane);
      commit_stores();
    }
  }
}

// Any C, and beta: through the same box, but a lane reads and writes its column of C itself.
template <class Out, class T, class Acc, int R>
__device__ __forceinline__ void store_elements(StagingBoxes& staging, const Result<T>& result,
                                               const Acc (&sum)[R], int64_t row, int64_t column, int64_t m,
                                               int64_t n) {
  constexpr int kAtOnce = 8;  // reads of C in flight
  const int lane = int(threadIdx.x) % 32;
  FASTGEMM_UNROLL
  for (int first = 0; first < 2 * R; first += kBoxColumns<Acc>) {
    unsigned char* const box = staging.box[0];
    __syncwarp();
    write_box<Acc>(box, sum, first, Acc(1));
    __syncwarp();
    const int64_t j = column + first + lane;
    FASTGEMM_NO_UNROLL
    for (int r = 0; r < kBoxRows && j < n; r += kAtOnce) {
      Acc value[kAtOnce];
      FASTGEMM_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        if (row + r + i < m)
          value[i] = result.template blend<Out>(
              row + r + i, j,
              load_vector<Acc>(box + swizzled<Swizzle::bytes128>(uint32_t((r + i) * 128 + lane * 4))));
      FASTGEMM_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        if (row + r + i < m) result.template put<Out>(row + r + i, j, value[i]);
    }
  }
}

// The 16 rows of a warp. `boxes`: whether store_boxes() may take them.
template <class T, class Acc, int R>
__device__ __forceinline__ void store_rows(StagingBoxes& staging, const TensorMap* out, bool boxes,
                                           const Result<T>& result, const Acc (&sum)[R], int row, int column,
                                           int plane, int64_t m, int64_t n) {
  const auto store_as = [&]<class Out>() {
    if (boxes) return store_boxes<Out>(staging, out, sum, result.alpha, row, column, plane);
    Result<T> r = result;
    r.out = static_cast<char*>(r.out) + plane * r.batch_stride * int(sizeof(Out));
    r.c = static_cast<const char*>(r.c) + plane * r.c_batch_stride * int(sizeof(Out));
    store_elements<Out>(staging, r, sum, row, column, m, n);
  };
  if constexpr (Result<T>::kMayBeWide) {
    if (result.wide) return store_as.template operator()<float>();
  }
  store_as.template operator()<typename Result<T>::Narrow>();
}

}  // namespace fastgemm::FASTGEMM_TARGET
