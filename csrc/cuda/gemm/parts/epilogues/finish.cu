// Applies the epilogue of a product in a separate pass (core/epilogue_pass.h), after kernels that do not
// apply it.

#include "core/epilogue_pass.h"
#include "core/min_max.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kColumns = 256, kRows = 4;  // per block; each thread has one column

template <class Sum, class Out>
struct Arguments {
  EpiloguePass f;
  __device__ __forceinline__ Accumulator<Out> read(const void* data, int64_t offset) const {
    return widen(static_cast<const Out*>(data)[offset]);
  }
};

// All of a thread's loads come before its stores, so that they are in flight together.
template <class Sum, class Out>
__global__ void __launch_bounds__(kColumns)
    finish_kernel(const __grid_constant__ Arguments<Sum, Out> g, int64_t first_matrix) {
  using Acc = Accumulator<Out>;
  const EpiloguePass& f = g.f;
  const int64_t column = int64_t(blockIdx.x) * kColumns + threadIdx.x, matrix = first_matrix + blockIdx.z;
  if (column >= f.n) return;
  const Sum* const sums =
      static_cast<const Sum*>(f.sums.data) + matrix * f.sums.batch_stride + column * f.sums.col_stride;
  Out* const out = static_cast<Out*>(f.out.data) + matrix * f.out.batch_stride + column * f.out.col_stride;
  const int64_t in_c = matrix * f.c.batch_stride + column * f.c.col_stride;
  const int64_t in_bias = column * f.epilogue.bias_col_stride;
  for (int64_t row = int64_t(blockIdx.y) * kRows; row < f.m; row += int64_t(gridDim.y) * kRows) {
    Acc value[kRows];
    FASTGEMM_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (row + i >= f.m) continue;
      value[i] = widen(sums[(row + i) * f.sums.row_stride]);
      const LineScales &by_row = f.scales.rows, &by_column = f.scales.columns;
      if (by_row.data) value[i] *= Acc(by_row.data[(row + i) * by_row.stride]);
      if (by_column.data) value[i] *= Acc(by_column.data[column * by_column.stride]);
      if (f.epilogue.bias)
        value[i] += g.read(f.epilogue.bias, (row + i) * f.epilogue.bias_row_stride + in_bias);
    }
    FASTGEMM_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (row + i >= f.m) continue;
      Acc x = activate(f.epilogue.activation, value[i]);
      if (f.beta != 0) x += Acc(f.beta) * g.read(f.c.data, (row + i) * f.c.row_stride + in_c);
      out[(row + i) * f.out.row_stride] = round_to<Out>(x);
    }
  }
}

template <class Sum, class Out>
void finish_elements(const EpiloguePass& f, Context& context) {
  constexpr int64_t kMostBlocks = 65535;
  for (int64_t first = 0; first < f.batch; first += kMostBlocks) {
    const dim3 grid(unsigned(ceil_div(f.n, kColumns)), unsigned(std::min(ceil_div(f.m, kRows), kMostBlocks)),
                    unsigned(std::min(kMostBlocks, f.batch - first)));
    launch<finish_kernel<Sum, Out>>("finish", {grid, dim3(kColumns)}, context)({f}, first);
  }
}

}  // namespace

void run_epilogue_pass(const EpiloguePass& given, Context& context) {
  if (given.batch * given.m * given.n == 0) return;
  // Neighbouring threads compute neighbours in a row of the result.
  const EpiloguePass f = given.out.col_stride == 1 || given.n == 1 ? given : given.transposed();
  const bool summed_wide = f.sum_type == DType::f32;
  switch (f.out_type) {
    case DType::f64:
      return finish_elements<double, double>(f, context);
    case DType::f16:
      return summed_wide ? finish_elements<float, Half>(f, context) : finish_elements<Half, Half>(f, context);
    case DType::bf16:
      return summed_wide ? finish_elements<float, BFloat16>(f, context)
                         : finish_elements<BFloat16, BFloat16>(f, context);
    default:
      return finish_elements<float, float>(f, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
