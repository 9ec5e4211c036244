// A packed weight as a matrix (core/dequantize.h). A block converts one unit, 64 rows of 128 numbers.
//
//   16 bytes of codes a thread  ->  numbers, by a table  ->  tile in shared memory  ->  whole rows
//
// A thread reads the codes that it would multiply (packed/fragments.cuh): consecutive threads read
// consecutive addresses, and each code's place is known at compile time. The tile turns that order into rows,
// so that threads beside each other write beside each other, 16 bytes each.
#include "core/dequantize.h"
#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/numeric.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 128;

// Rows of the tile are 16 bytes longer than 128 numbers, so that rows lie in different banks.
template <class T>
inline constexpr int kPitch = packed::kColumns + 16 / int(sizeof(T));
template <class T>
struct Shared {
  float numbers[256];  // of every code
  alignas(16) T tile[packed::kRows * kPitch<T>];
};

// Scale and zero of a row and of the one 8 rows below, for the columns from `column` on.
struct Rows {
  float scale[2], zero[2];
};

__device__ __forceinline__ Rows read_rows(const Dequantize& g, const unsigned char* unit, int64_t row0,
                                          int row, int column) {
  const PackedWeight& w = g.packed;
  const bool by_rows = w.by_rows(g.k);
  const unsigned char* const scales = unit + packed::unit_code_bytes(w);
  const unsigned char* const zeros = scales + packed::unit_scale_bytes(w, g.k);
  Rows rows;
  FASTGEMM_UNROLL
  for (int i = 0; i < 2; ++i) {
    const int64_t at =
        by_rows ? min(row0 + row + 8 * i, g.n - 1) : packed::scale_in_unit(w, row + 8 * i, column);
    rows.scale[i] = packed::scale_at(w.scale, by_rows ? w.scales : scales, at);
    rows.zero[i] = packed::zero_at(w, by_rows ? w.zeros : zeros, at);
  }
  return rows;
}

// Converts a thread's codes of 16 columns, in `words`, which begin at column `column` of the unit.
template <class T, int BITS>
__device__ __forceinline__ void convert(Shared<T>& shared, const PackedWeight& w, const Rows& rows,
                                        const uint32_t* words, int row, int column) {
  constexpr uint32_t kMask = (1u << BITS) - 1;
  FASTGEMM_UNROLL
  for (int p = 0; p < 4; ++p) {  // the registers of a fragment (core/packed_weight.h, place_in_unit())
    const int bit = BITS == 4 ? 4 * p : 8 * (p % 2), half = p % 2;
    const uint32_t word = words[BITS == 4 ? 0 : p / 2];
    Vector<T, 2> pair;
    FASTGEMM_UNROLL
    for (int odd = 0; odd < 2; ++odd) {
      const float code = shared.numbers[word >> (bit + 16 * odd) & kMask];
      pair[odd] = round_to<T>(packed::weight_of(w, code, rows.scale[half], rows.zero[half]));
    }
    store_vector(shared.tile + (row + 8 * half) * kPitch<T> + column + p / 2 * 8, pair);
  }
}

template <class T, int BITS>
__global__ void __launch_bounds__(kThreads) dequantize_kernel(const __grid_constant__ Dequantize g) {
  constexpr int kReads = BITS / 2, kSteps = 16 / BITS;  // of 16 bytes; steps of 16 columns in each
  FASTGEMM_SHARED Shared<T> shared;
  const PackedWeight& w = g.packed;
  const int64_t column_units = packed::blocks(g.k, packed::kColumns);
  const int64_t row0 = blockIdx.x / column_units * packed::kRows;
  const int64_t column0 = blockIdx.x % column_units * packed::kColumns;
  const auto* unit =
      static_cast<const unsigned char*>(g.codes) + int64_t(blockIdx.x) * packed::unit_bytes(w, g.k);
  const int thread = int(threadIdx.x), row = thread / 32 * 16 + thread % 32 / 4, column = thread % 4 * 2;
  Unit codes[kReads];
  FASTGEMM_UNROLL
  for (int i = 0; i < kReads; ++i) codes[i] = load_vector<Unit>(unit + (i * kThreads + thread) * 16);
  for (int i = thread; i < 1 << BITS; i += kThreads) shared.numbers[i] = packed::decode(w.code, unsigned(i));
  __syncthreads();
  // The columns of a group in this unit: 16, 32, 64 or all.
  const int group = w.group_k < packed::kColumns ? int(w.group_k) : packed::kColumns;
  Rows rows;
  FASTGEMM_UNROLL
  for (int i = 0; i < kReads; ++i) {
    uint32_t words[4];
    FASTGEMM_UNROLL
    for (int j = 0; j < 4; ++j) words[j] = codes[i][j];
    FASTGEMM_UNROLL
    for (int j = 0; j < kSteps; ++j) {
      const int step = i * kSteps + j;
      if ((step * 16 & (group - 1)) == 0) rows = read_rows(g, unit, row0, row, step * 16);
      convert<T, BITS>(shared, w, rows, words + j * (BITS / 4), row, step * 16 + column);
    }
  }
  __syncthreads();

  constexpr int kEach = kPer16Bytes<T>, kUnits = packed::kColumns / kEach;
  const bool whole = g.out.row_stride % kEach == 0;
  for (int i = thread; i < packed::kRows * kUnits; i += kThreads) {
    const int64_t r = row0 + i / kUnits, c = column0 + i % kUnits * kEach;
    if (r >= g.n || c >= g.k) continue;
    const auto numbers = load_vector<Vector16<T>>(shared.tile + i / kUnits * kPitch<T> + i % kUnits * kEach);
    T* const out = static_cast<T*>(g.out.data) + r * g.out.row_stride + c;
    if (whole && c + kEach <= g.k) {
      store_vector_whole(out, numbers);
      continue;
    }
    FASTGEMM_UNROLL
    for (int j = 0; j < kEach; ++j)
      if (c + j < g.k) out[j] = numbers[j];
  }
}

template <class T>
void dequantize(const Dequantize& g, Context& context) {
  const int64_t units = packed::blocks(g.n, packed::kRows) * packed::blocks(g.k, packed::kColumns);
  const LaunchShape shape{dim3(unsigned(units)), dim3(kThreads)};
  bits_of(g.packed.code) == 4 ? launch<dequantize_kernel<T, 4>>("dequantize", shape, context)(g)
                              : launch<dequantize_kernel<T, 8>>("dequantize", shape, context)(g);
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
