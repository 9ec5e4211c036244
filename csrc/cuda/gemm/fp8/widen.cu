// Codes of 8-bit floating-point numbers as wider numbers, times their scales (core/fp8.h). A thread reads 16
// codes of a row and writes 16 numbers. They share a scale unless blocks have other widths.
#include "core/fp8.h"
#include "core/min_max.h"
#include "cuda/device/dispatch.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256, kEach = 16;

// One scale for 16 codes.
template <Fp8 code, class T>
__device__ __forceinline__ void widen_run(const uint8_t* codes, int count, float scale, T* out) {
  constexpr int kNumbers = kPer16Bytes<T>;
  const bool whole = count >= kEach;
  Unit bytes{};
  if (whole && is_aligned(codes, 16)) {
    bytes = load_vector<Unit>(codes);
  } else {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i)
      if (i < count) bytes[i / 4] |= uint32_t(codes[i]) << (i % 4 * 8);
  }
  Vector16<T> numbers[kEach / kNumbers];
  FASTGEMM_UNROLL
  for (int i = 0; i < kEach; ++i)
    numbers[i / kNumbers][i % kNumbers] =
        round_to<T>(fp8::decode<code>(bytes[i / 4] >> (i % 4 * 8) & 255) * scale);
  if (whole && is_aligned(out, 16)) {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach / kNumbers; ++i) store_vector_whole(out + i * kNumbers, numbers[i]);
  } else {
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i)
      if (i < count) out[i] = numbers[i / kNumbers][i % kNumbers];
  }
}

template <Fp8 code, class T>
__global__ void __launch_bounds__(kThreads) widen_kernel(const __grid_constant__ WidenFp8 g) {
  const int64_t column = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (column >= g.cols) return;
  const int count = int(min(g.cols - column, int64_t{kEach}));
  const bool share = g.scales.block_cols % kEach == 0 || g.scales.col_stride == 0;
  for (int64_t row = blockIdx.y; row < g.rows; row += gridDim.y) {
    const auto* const codes = static_cast<const uint8_t*>(g.codes) + row * g.row_stride + column;
    T* const out = static_cast<T*>(g.out) + row * g.out_row_stride + column;
    if (share) {
      widen_run<code>(codes, count, fp8::scale_of_code(g.scales, row, column), out);
      continue;
    }
    for (int i = 0; i < count; ++i)
      out[i] = round_to<T>(fp8::decode<code>(codes[i]) * fp8::scale_of_code(g.scales, row, column + i));
  }
}

template <Fp8 code, class T>
void widen(const WidenFp8& g, Context& context) {
  const dim3 grid(unsigned(ceil_div(g.cols, kThreads * kEach)), unsigned(std::min<int64_t>(g.rows, 65535)));
  launch<widen_kernel<code, T>>("widen_fp8", {grid, dim3(kThreads)}, context)(g);
}

}  // namespace

void run_widen_fp8(const WidenFp8& g, Context& context) {
  if (g.rows <= 0 || g.cols <= 0) return;
  with_code(g.code, [&]<Fp8 code>() {
    with_element<Half, BFloat16, float>(g.type, [&]<class T>() { widen<code, T>(g, context); });
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
