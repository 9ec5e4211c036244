// Numbers as codes of 8 bits with scales (core/fp8.h). A team of threads, a warp or a block of them, has one
// scale: it finds the largest modulus, and then rounds, reading its numbers from the cache. A tensor with a
// single scale has two kernels: many blocks find its largest modulus together.
#include "core/fp8.h"
#include "core/min_max.h"
#include "cuda/device/dispatch.cuh"
#include "cuda/device/fp8.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256, kEach = 8, kMostPartials = 1024;

// A rectangle of x, read in runs of 8 numbers.
struct Rectangle {
  int64_t row, column;
  int rows, cols;

  __device__ __forceinline__ int runs_of_a_row() const { return (cols + kEach - 1) / kEach; }
};
__device__ __forceinline__ Rectangle block_of(const QuantizeFp8& g, int64_t index) {
  const int64_t across = g.scale_cols();
  Rectangle r;
  r.row = index / across * g.block_rows, r.column = index % across * g.block_cols;
  r.rows = int(min(g.block_rows, g.rows - r.row)), r.cols = int(min(g.block_cols, g.cols - r.column));
  return r;
}

template <class T>
struct Run {
  float x[kEach];
  int64_t row, column;
  int count;

  __device__ __forceinline__ Run(const QuantizeFp8& g, const Rectangle& r, int64_t run) {
    const int across = r.runs_of_a_row(), first = int(run % across) * kEach;
    row = r.row + run / across, column = r.column + first, count = min(kEach, r.cols - first);
    const T* const from = static_cast<const T*>(g.x) + row * g.row_stride + column;
    if (count == kEach && is_aligned(from, 16)) {
      constexpr int kNumbers = kPer16Bytes<T> < kEach ? kPer16Bytes<T> : kEach;
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach; i += kNumbers) {
        const auto numbers = load_vector<Vector16<T>>(from + i);
        FASTGEMM_UNROLL
        for (int j = 0; j < kNumbers; ++j) x[i + j] = widen(numbers[j]);
      }
      return;
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) x[i] = i < count ? widen(from[i]) : 0.0f;
  }
  __device__ __forceinline__ uint32_t largest() const {
    uint32_t bits = 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) bits = max(bits, fp8::bits_of_float(x[i]) & 0x7fffffffu);
    return bits;
  }
  template <Fp8 code>
  __device__ __forceinline__ void store(const QuantizeFp8& g, float scale) const {
    auto* const to = static_cast<uint8_t*>(g.codes) + row * g.cols + column;
    Vector<uint8_t, kEach> codes;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; i += 2) {
      const uint32_t pair = encode_pair<code>(fp8::quotient(x[i], scale), fp8::quotient(x[i + 1], scale));
      codes[i] = uint8_t(pair), codes[i + 1] = uint8_t(pair >> 8);
    }
    if (count == kEach && is_aligned(to, kEach)) return store_vector_whole(to, codes);
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i)
      if (i < count) to[i] = codes[i];
  }
};

// The largest of a team's numbers, in every thread of it. All threads of the block call it.
template <int TEAM>
__device__ __forceinline__ uint32_t largest_of_team(uint32_t x) {
  FASTGEMM_UNROLL
  for (int step = (TEAM < 32 ? TEAM : 32) / 2; step > 0; step /= 2)
    x = max(x, __shfl_xor_sync(0xffffffffu, x, step));
  if constexpr (TEAM > 32) {
    FASTGEMM_SHARED uint32_t warps[kThreads / 32];
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    FASTGEMM_UNROLL
    for (int i = 0; i < kThreads / 32; ++i) x = max(x, warps[i]);
  }
  return x;
}

// Each team has one block of x and its scale.
template <Fp8 code, class T, int TEAM>
__global__ void __launch_bounds__(kThreads)
    quantize_blocks_kernel(const __grid_constant__ QuantizeFp8 g, int64_t blocks) {
  const int64_t index = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / TEAM;
  const int member = int(threadIdx.x) % TEAM;
  const bool inside = index < blocks;
  const Rectangle r = block_of(g, inside ? index : 0);
  const int64_t runs = inside ? int64_t(r.rows) * r.runs_of_a_row() : 0;
  uint32_t bits = 0;
  for (int64_t i = member; i < runs; i += TEAM) bits = max(bits, Run<T>(g, r, i).largest());
  const float scale = fp8::scale_of<code>(largest_of_team<TEAM>(bits), g.scale);
  if (inside && member == 0) fp8::store_scale(g, index, scale);
  // The scale as it is stored, so that codes are those of what a reader sees.
  for (int64_t i = member; i < runs; i += TEAM) Run<T>(g, r, i).template store<code>(g, scale);
}

__device__ __forceinline__ Rectangle whole(const QuantizeFp8& g) { return {0, 0, int(g.rows), int(g.cols)}; }

template <class T>
__global__ void __launch_bounds__(kThreads)
    largest_kernel(const __grid_constant__ QuantizeFp8 g, uint32_t* partials) {
  const Rectangle r = whole(g);
  const int64_t runs = g.rows * r.runs_of_a_row();
  uint32_t bits = 0;
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < runs; i += int64_t(gridDim.x) * kThreads)
    bits = max(bits, Run<T>(g, r, i).largest());
  bits = largest_of_team<kThreads>(bits);
  if (threadIdx.x == 0) partials[blockIdx.x] = bits;
}

// One scale for all: given, or of the largest partial result.
template <Fp8 code, class T>
__global__ void __launch_bounds__(kThreads)
    quantize_tensor_kernel(const __grid_constant__ QuantizeFp8 g, const uint32_t* partials, int count) {
  float scale = 0.0f;
  if (g.scale_is_given) {
    scale = packed::scale_at(g.scale, g.scales, 0);
  } else {
    uint32_t bits = 0;
    for (int i = int(threadIdx.x); i < count; i += kThreads) bits = max(bits, partials[i]);
    scale = fp8::scale_of<code>(largest_of_team<kThreads>(bits), g.scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) fp8::store_scale(g, 0, scale);
  }
  const Rectangle r = whole(g);
  const int64_t runs = g.rows * r.runs_of_a_row();
  for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < runs; i += int64_t(gridDim.x) * kThreads)
    Run<T>(g, r, i).template store<code>(g, scale);
}

template <Fp8 code, class T>
void quantize_tensor(const QuantizeFp8& g, Context& context) {
  const int64_t runs = g.rows * ceil_div(g.cols, kEach);
  const int blocks = int(std::min<int64_t>(ceil_div(runs, kThreads), kMostPartials));
  const LaunchShape shape{dim3(unsigned(blocks)), dim3(kThreads)};
  uint32_t* partials = nullptr;
  if (!g.scale_is_given) {
    partials = static_cast<uint32_t*>(context.allocate(size_t(blocks) * sizeof(uint32_t)));
    launch<largest_kernel<T>>("largest", shape, context)(g, partials);
  }
  launch<quantize_tensor_kernel<code, T>>("quantize_fp8", shape, context)(g, partials, blocks);
}

template <Fp8 code, class T>
void quantize(const QuantizeFp8& g, Context& context) {
  const int64_t blocks = g.scale_rows() * g.scale_cols();
  if (blocks == 1) return quantize_tensor<code, T>(g, context);
  const auto run = [&]<int TEAM>() {
    const LaunchShape shape{dim3(unsigned(ceil_div(blocks, kThreads / TEAM))), dim3(kThreads)};
    launch<quantize_blocks_kernel<code, T, TEAM>>("quantize_fp8", shape, context)(g, blocks);
  };
  // A team has a run of numbers for each thread, or up to 4.
  const int64_t runs = g.block_rows * ceil_div(std::min(g.block_cols, g.cols), kEach);
  if (runs <= 4) return run.template operator()<4>();
  if (runs <= 16) return run.template operator()<16>();
  runs <= 128 ? run.template operator()<32>() : run.template operator()<kThreads>();
}

}  // namespace

void run_quantize_fp8(const QuantizeFp8& g, Context& context) {
  if (g.rows <= 0 || g.cols <= 0) return;
  with_code(g.code, [&]<Fp8 code>() {
    with_element<Half, BFloat16, float>(g.type, [&]<class T>() { quantize<code, T>(g, context); });
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
