// A thread's sums in bf16x6_fused, and the two ways to compute them: WgmmaSums starts the products of a step
// and collects them later, MmaSums waits for each product. Contract: multiply_stage() adds the products of a
// stage to the sums; store() writes the sums to the slab. In both a warp multiplies 32 rows by all columns,
// from the same planes in shared memory and the same fragments of rows in registers, and adds up 16 products
// at a time, small ones first.
#pragma once

#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/gemm/fast/fused_planes.cuh"

namespace fastgemm::FASTGEMM_TARGET::fused {

// Writes the sums of all columns to the slab. The pitches are the distances of the tile's rows and columns in
// the slab, in words.
template <class T>
__device__ __forceinline__ void store_sums(const float (&sum)[kHalves][T::kSums], float* slab, int row_pitch,
                                           int column_pitch) {
  const int row = int(threadIdx.x) / 32 * 32;
  const auto store_columns = [&](auto&& store_rows) {
    FASTGEMM_UNROLL
    for (int j = 0; j < T::kFragments * 2; ++j) {
      Vector<float, 4> rows;
      FASTGEMM_UNROLL
      for (int i = 0; i < 4; ++i) rows[i] = sum[i / 2][j / 2 * 4 + i % 2 * 2 + j % 2] * kUnscale;
      store_rows(slab + (j / 2 * 8 + lane_quad() * 2 + j % 2) * column_pitch, rows);
    }
  };
  if (!T::kRowsAlongK && row_pitch == 1) {  // four neighbours
    store_columns([&](float* to, const Vector<float, 4>& rows) {
      store_vector_whole_shared(to + row + row_of_slot<T::kRowsAlongK>(0), rows);
    });
  } else {
    store_columns([&](float* to, const Vector<float, 4>& rows) {
      FASTGEMM_UNROLL
      for (int i = 0; i < 4; ++i) to[(row + row_of_slot<T::kRowsAlongK>(i)) * row_pitch] = rows[i];
    });
  }
}

template <class T>
class WgmmaSums {
 public:
  // Multiplies the two steps of a stage. While the tensor cores work, the rows of the second step are cut,
  // and then the columns of the next stage.
  template <class Cut>
  __device__ __forceinline__ void multiply_stage(const float* rows, const StagePlanes<T>& columns,
                                                 Cut&& cut_next_columns) {
    Fragments first, second;
    cut_rows<T>(first, rows, 0);
    begin(0, first, columns[0]);
    begin(1, first, columns[0]);
    cut_rows<T>(second, rows, 1);
    finish<1>(0);
    begin(0, second, columns[1]);
    finish<1>(1);
    begin(1, second, columns[1]);
    cut_next_columns();
    finish<1>(0);
    finish<0>(1);
  }
  __device__ __forceinline__ void store(float* slab, int row_pitch, int column_pitch) const {
    store_sums<T>(sum_, slab, row_pitch, column_pitch);
  }

 private:
  using Planes = StepPlanes<T>;

  // Starts the products of a step, small ones first.
  __device__ __forceinline__ void begin(int half, const Fragments& a, const Planes& b) {
    begin(part_[half], a[half], b, Scheme::Small{});
  }
  template <planes::Product... small>
  __device__ __forceinline__ static void begin(float (&part)[T::kSums], const uint32_t (&a)[kPlanes][4],
                                               const Planes& b, planes::Products<small...>) {
    const auto columns = matrix_descriptor(b, Swizzle::none, T::kHalfWords * 4, 128);
    const auto multiply = [&](planes::Product p, bool accumulate) {
      wgmma<BFloat16>(part, a[p.a], columns.at(p.b * T::kPlaneWords * 4), accumulate);
    };
    wgmma_fence(part);
    bool accumulate = false;
    ((multiply(small, accumulate), accumulate = true), ...);
    multiply({0, 0}, true);
    wgmma_commit();
  }
  // Waits for a step's products and adds them to the sums. `pending` steps have started since.
  template <int pending>
  __device__ __forceinline__ void finish(int half) {
    wgmma_wait<pending>(part_[half]);
    FASTGEMM_UNROLL
    for (int i = 0; i < T::kSums; ++i) sum_[half][i] += part_[half][i];
  }

  float sum_[kHalves][T::kSums] = {}, part_[kHalves][T::kSums];
};

// A product of two fragments waits for the product before it that has the same sums. So a warp takes turns
// with 8 sums: up to 4 fragments of columns times both halves of its rows.
template <class T>
class MmaSums {
 public:
  template <class Cut>
  __device__ __forceinline__ void multiply_stage(const float* rows, const StagePlanes<T>& columns,
                                                 Cut&& cut_next_columns) {
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < kSteps; ++step) {
      Fragments a;
      cut_rows<T>(a, rows, step);
      FASTGEMM_UNROLL
      for (int first = 0; first < T::kFragments; first += kAtOnce)
        multiply(a, columns[step], first, Scheme::Small{});
    }
    cut_next_columns();
  }
  __device__ __forceinline__ void store(float* slab, int row_pitch, int column_pitch) const {
    store_sums<T>(sum_, slab, row_pitch, column_pitch);
  }

 private:
  static constexpr int kAtOnce = T::kFragments < 4 ? T::kFragments : 4;

  // Multiplies by the fragments of columns [first, first + kAtOnce). ldmatrix loads two fragments at a time,
  // as four matrices of 128 bytes: 8 values of k of 8 columns. Lane 8 i + r has the address of column r of
  // matrix i.
  template <planes::Product... small>
  __device__ __forceinline__ void multiply(const Fragments& a, const StepPlanes<T>& columns, int first,
                                           planes::Products<small...>) {
    const int lane = int(threadIdx.x) % 32;
    const int from = lane / 8 % 2 * T::kHalfWords + (first * 8 + lane / 16 * 8 + lane % 8) * 4;
    uint32_t b[kPlanes][kAtOnce / 2][4];
    FASTGEMM_UNROLL
    for (int p = 0; p < kPlanes; ++p) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce / 2; ++j) load_matrices<4>(b[p][j], columns[p] + from + 64 * j);
    }
    float part[kHalves][kAtOnce][4] = {};
    const auto multiply_planes = [&](planes::Product p) {
      FASTGEMM_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        FASTGEMM_UNROLL
        for (int h = 0; h < kHalves; ++h)
          mma<BFloat16>(part[h][j], a[h][p.a], b[p.b][j / 2][j % 2 * 2], b[p.b][j / 2][j % 2 * 2 + 1]);
      }
    };
    (multiply_planes(small), ...);
    multiply_planes({0, 0});
    FASTGEMM_UNROLL
    for (int i = 0; i < 4 * kAtOnce; ++i) {
      FASTGEMM_UNROLL
      for (int h = 0; h < kHalves; ++h) sum_[h][4 * first + i] += part[h][i / 4][i % 4];
    }
  }

  float sum_[kHalves][T::kSums] = {};
};

}  // namespace fastgemm::FASTGEMM_TARGET::fused
