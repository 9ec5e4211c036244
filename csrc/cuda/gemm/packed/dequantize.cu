// A packed weight as a matrix (core/dequantize.h). A block brings one unit to shared memory and writes its 64
// rows of 128 numbers. Threads beside each other write beside each other in a row.
#include "core/dequantize.h"
#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256;                                 // as many as there are codes of 8 bits
constexpr int kMostBytes = packed::kRows * packed::kColumns;  // of the codes of a unit

template <class T>
__global__ void __launch_bounds__(kThreads) dequantize_kernel(const __grid_constant__ Dequantize g) {
  constexpr int kEach = kPer16Bytes<T>;
  FASTGEMM_SHARED Unit bytes[kMostBytes / 16];
  FASTGEMM_SHARED float numbers_of[kThreads];  // of every code
  const PackedWeight& w = g.packed;
  const int64_t column_units = packed::blocks(g.k, packed::kColumns);
  const int64_t unit_row = blockIdx.x / column_units, unit_column = blockIdx.x % column_units;
  const auto* unit =
      static_cast<const unsigned char*>(g.codes) + int64_t(blockIdx.x) * packed::unit_bytes(w, g.k);
  numbers_of[threadIdx.x] = packed::decode(w.code, threadIdx.x);
  for (int i = int(threadIdx.x) * 16; i < packed::unit_code_bytes(w); i += kThreads * 16)
    bytes[i / 16] = load_vector<Unit>(unit + i);
  __syncthreads();
  const auto* codes = reinterpret_cast<const unsigned char*>(bytes);

  const bool by_rows = w.by_rows(g.k);
  const unsigned char* unit_scales = unit + packed::unit_code_bytes(w);
  const unsigned char* unit_zeros = unit_scales + packed::unit_scale_bytes(w, g.k);
  const unsigned mask = bits_of(w.code) == 4 ? 15u : 255u;
  for (int i = int(threadIdx.x) * kEach; i < kMostBytes; i += kThreads * kEach) {
    const int r = i / packed::kColumns, c = i % packed::kColumns;
    const int64_t row = unit_row * packed::kRows + r, column = unit_column * packed::kColumns + c;
    if (row >= g.n || column >= g.k) continue;
    // A group has at least 16 columns, so these numbers share one scale.
    const int64_t at = by_rows ? row : packed::scale_in_unit(w, r, c);
    const float scale = packed::scale_at(w.scale, by_rows ? w.scales : unit_scales, at);
    const float zero = packed::zero_at(w, by_rows ? w.zeros : unit_zeros, at);
    T* out = static_cast<T*>(g.out.data) + row * g.out.row_stride + column;
    Vector16<T> numbers;
    FASTGEMM_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const packed::Place place = packed::place_in_unit(w.code, r, c + j);
      const float code = numbers_of[codes[place.byte] >> place.bit & mask];
      numbers[j] = round_to<T>(packed::weight_of(w, code, scale, zero));
    }
    if (column + kEach <= g.k && g.out.row_stride % kEach == 0) {
      store_vector(out, numbers);
      continue;
    }
    for (int j = 0; j < kEach && column + j < g.k; ++j) out[j] = numbers[j];
  }
}

template <class T>
void dequantize(const Dequantize& g, Context& context) {
  const int64_t units = packed::blocks(g.n, packed::kRows) * packed::blocks(g.k, packed::kColumns);
  launch<dequantize_kernel<T>>("dequantize", {dim3(unsigned(units)), dim3(kThreads)}, context)(g);
}

}  // namespace

void run_dequantize(const Dequantize& g, Context& context) {
  if (g.n * g.k == 0) return;
  switch (g.type) {
    case DType::f16:
      return dequantize<Half>(g, context);
    case DType::bf16:
      return dequantize<BFloat16>(g, context);
    default:
      return dequantize<float>(g, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
