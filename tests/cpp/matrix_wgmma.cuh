// The kernels of wgmma: one product of 128 bytes along k, and a pipeline.
#pragma once

#include "matrix_kernels.cuh"

namespace fastgemm::FASTGEMM_TARGET {

using test::Mistake;

// How an operand comes to wgmma: as boxes of this kind, or gathered into registers from a matrix whose rows
// run along k.
template <Major major_, Swizzle swizzle_>
struct Boxes {
  static constexpr Major kMajor = major_;
  static constexpr Swizzle kSwizzle = swizzle_;
  static constexpr bool kRegisters = false;
};
struct Registers {
  static constexpr Major kMajor = Major::k;
  static constexpr Swizzle kSwizzle = Swizzle::none;
  static constexpr bool kRegisters = true;
};

// An operand of `extent` rows of m or n and 128 bytes along k.
template <class T, class Kind, int extent>
struct OperandBoxes {
  static constexpr bool kAlongK = Kind::kMajor == Major::k;
  static constexpr int kK = 128 / int(sizeof(T)), kBytes = extent * 128;
  static constexpr int kRows = kAlongK ? extent : kK, kColumns = kAlongK ? kK : extent;
  static constexpr int kWidth = kBoxWidth<Kind::kSwizzle>, kBoxColumns = kWidth / int(sizeof(T));

  static TensorMap map(const void* data) {
    const int64_t row = kColumns * int64_t{sizeof(T)};
    return make_tensor_map(
        {data, sizeof(T), kColumns, kRows, 1, row, row * kRows, kBoxColumns, kRows, Kind::kSwizzle});
  }
  __device__ __forceinline__ static void load(unsigned char* to, const TensorMap& map, Barrier* landed) {
    for (int column = 0; column < kColumns; column += kBoxColumns, to += kRows * kWidth)
      load_box(to, &map, landed, column, 0, 0);
  }
  __device__ __forceinline__ static MatrixDescriptor descriptor(const unsigned char* boxes, int step) {
    return box_descriptor<Kind::kMajor, Kind::kSwizzle>(boxes, kRows)
        .at(box_step<Kind::kMajor, Kind::kSwizzle>(kRows, step));
  }
};

template <class T, int N, class A, class B, bool accumulate>
__global__ void __launch_bounds__(128)
    wgmma_kernel(const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b, const T* a,
                 Accumulator<T>* c, Swap swap) {
#if FASTGEMM_SM90A
  using BoxesA = OperandBoxes<T, A, 64>;
  using BoxesB = OperandBoxes<T, B, N>;
  using Layout = WgmmaLayout<T>;
  FASTGEMM_DYNAMIC_SHARED(unsigned char, shared_a);
  unsigned char* const shared_b = shared_a + BoxesA::kBytes;
  FASTGEMM_SHARED Barrier landed;
  const int thread = int(threadIdx.x);
  if (thread == 0) {
    init_barrier(&landed, 1);
    fence_barrier_init();
    arrive_expecting(&landed, BoxesB::kBytes + (A::kRegisters ? 0 : BoxesA::kBytes));
    if constexpr (!A::kRegisters) BoxesA::load(shared_a, map_a, &landed);
    BoxesB::load(shared_b, map_b, &landed);
  }
  __syncthreads();
  wait_phase(&landed, 0);

  const auto element = [&](int i) -> Accumulator<T>& {
    return c[Layout::c(thread, i).row * N + Layout::c(thread, i).column];
  };
  Accumulator<T> d[N / 2];
  FASTGEMM_UNROLL
  for (int i = 0; i < N / 2; ++i) d[i] = element(i);
  if constexpr (A::kRegisters) {
    uint32_t ra[4][4];
    FASTGEMM_UNROLL
    for (int step = 0; step < 4; ++step) {
      gather(ra[step], a + step * Layout::kK, BoxesA::kK, 1, [&](int i) { return Layout::a(thread, i); });
      exchange(ra[step], swap, Swap::a);
    }
    wgmma_fence(d, ra[0], ra[1], ra[2], ra[3]);
    FASTGEMM_UNROLL
    for (int step = 0; step < 4; ++step)
      wgmma<T, B::kMajor>(d, ra[step], BoxesB::descriptor(shared_b, step), accumulate || step > 0);
  } else {
    wgmma_fence(d);
    FASTGEMM_UNROLL
    for (int step = 0; step < 4; ++step)
      wgmma<T, A::kMajor, B::kMajor>(d, BoxesA::descriptor(shared_a, step),
                                     BoxesB::descriptor(shared_b, step), accumulate || step > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(d);
  if constexpr (N <= 64) exchange(d, swap, Swap::d);
  FASTGEMM_UNROLL
  for (int i = 0; i < N / 2; ++i) element(i) = d[i];
#endif
}

// Block tile (64, 64), 64 along k a stage, two stages: the boxes of the next come while wgmma reads this one.
template <Mistake mistake>
__global__ void __launch_bounds__(128)
    pipeline_kernel(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, float* c, int n,
                    int k) {
#if FASTGEMM_SM90A
  constexpr int kTile = 64 * 128;  // bytes of (64, 64) elements
  FASTGEMM_DYNAMIC_SHARED(unsigned char, stages);
  FASTGEMM_SHARED Barrier full[2];
  const int row = int(blockIdx.y) * 64, column = int(blockIdx.x) * 64, steps = k / 64;
  const auto load = [&](int step) {
    unsigned char* const to = stages + step % 2 * (2 * kTile);
    arrive_expecting(&full[step % 2], 2 * kTile);
    load_box(to, &a, &full[step % 2], step * 64, row, 0);
    load_box(to + kTile, &b, &full[step % 2], step * 64, column, 0);
  };
  if (threadIdx.x == 0) {
    init_barrier(&full[0], 1), init_barrier(&full[1], 1);
    fence_barrier_init();
    load(0);
  }
  __syncthreads();

  float d[32];
  if constexpr (mistake == Mistake::no_wgmma_fence) wgmma_fence(d);
  FASTGEMM_UNROLL
  for (int i = 0; i < 32; ++i) d[i] = 0;
  for (int step = 0; step < steps; ++step) {
    const unsigned char* const tile = stages + step % 2 * (2 * kTile);
    if (threadIdx.x == 0 && step + 1 < steps) load(step + 1);
    if constexpr (mistake != Mistake::no_barrier_wait) wait_phase(&full[step % 2], uint32_t(step / 2 % 2));
    if constexpr (mistake != Mistake::no_wgmma_fence) wgmma_fence(d);
    FASTGEMM_UNROLL
    for (int i = 0; i < 4; ++i)
      wgmma<BFloat16>(d, box_descriptor<Major::k, Swizzle::bytes128>(tile, 64).at(32 * i),
                      box_descriptor<Major::k, Swizzle::bytes128>(tile + kTile, 64).at(32 * i));
    wgmma_commit();
    if constexpr (mistake == Mistake::early_refill)
      if (threadIdx.x == 0 && step == 0) load(step + 2);
    if constexpr (mistake != Mistake::no_wgmma_wait) wgmma_wait<0>(d);
    __syncthreads();  // the stage may be loaded again
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < 32; ++i) {
    const Position p = WgmmaLayout<BFloat16>::c(int(threadIdx.x), i);
    c[(row + p.row) * n + column + p.column] = d[i];
  }
#endif
}

}  // namespace fastgemm::FASTGEMM_TARGET
