// The weighted sum of each token's rows, and its gradients (core/experts.h).
//   sums        a thread has 16 bytes of a row of the result, and reads those of all rows that it adds up
//   gradients   a warp has one pair of a token and an expert: a row of y, and one weight
#include "core/experts.h"
#include "core/min_max.h"
#include "cuda/device/dispatch.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kThreads = 256, kMostRows = 65535;

// Calls body with the numbers as an array of their type.
template <class Body>
__device__ __forceinline__ auto with_floats(const AnyFloats& x, Body&& body) {
  if (x.type == DType::f64) return body(static_cast<double*>(x.data));
  if (x.type == DType::f32) return body(static_cast<float*>(x.data));
  if (x.type == DType::f16) return body(static_cast<Half*>(x.data));
  return body(static_cast<BFloat16*>(x.data));
}
template <class Acc>
__device__ __forceinline__ Acc weight_at(const AnyFloats& weights, int64_t i) {
  if (weights.data == nullptr) return Acc(1);
  return with_floats(weights, [&](auto* x) { return Acc(widen(x[i])); });
}

// The numbers of a row that one instruction loads; one at a time if rows do not begin at multiples of 16
// bytes.
template <class T, bool in_vectors>
using Numbers = Vector<T, in_vectors ? kPer16Bytes<T> : 1>;

template <class T, bool in_vectors>
__global__ void __launch_bounds__(kThreads) combine_rows_kernel(const __grid_constant__ CombineRows g) {
  using Acc = Accumulator<T>;
  using V = Numbers<T, in_vectors>;
  constexpr int kEach = int(sizeof(V) / sizeof(T));
  const int64_t column = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
  if (column >= g.columns) return;
  for (int64_t token = blockIdx.y; token < g.tokens; token += gridDim.y) {
    const int64_t first = token * g.chosen;
    Acc sum[kEach] = {};
#if defined(__CUDACC__)
#pragma unroll 4
#endif
    for (int j = 0; j < g.chosen; ++j) {
      const T* const from = static_cast<const T*>(g.y) + g.places[first + j] * g.row_stride + column;
      const V y = load_vector<V>(from);
      const Acc weight = weight_at<Acc>(g.weights, first + j);
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach; ++i) sum[i] += weight * widen(y[i]);
    }
    V out;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) out[i] = round_to<T>(sum[i]);
    store_vector(static_cast<T*>(g.out) + token * g.columns + column, out);
  }
}

template <class T, bool in_vectors>
__global__ void __launch_bounds__(kThreads)
    combine_gradients_kernel(const __grid_constant__ CombineGradients g) {
  using Acc = Accumulator<T>;
  using V = Numbers<T, in_vectors>;
  constexpr int kEach = int(sizeof(V) / sizeof(T));
  const CombineRows& f = g.forward;
  const int64_t pair = int64_t(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (pair >= f.tokens * f.chosen) return;
  const int lane = int(threadIdx.x) % 32;
  const int64_t token = pair / f.chosen, place = f.places[pair];
  const T* const grad = static_cast<const T*>(g.grad) + token * g.grad_stride;
  const T* const y = static_cast<const T*>(f.y) + place * f.row_stride;
  T* const out = static_cast<T*>(f.out) + place * f.columns;
  const Acc weight = weight_at<Acc>(f.weights, pair);
  Acc dot = 0;
  for (int64_t column = lane * kEach; column < f.columns; column += 32 * kEach) {
    const V of_result = load_vector<V>(grad + column);
    if (g.of_weights.data != nullptr) {
      const V row = load_vector<V>(y + column);
      FASTGEMM_UNROLL
      for (int i = 0; i < kEach; ++i) dot += widen(of_result[i]) * widen(row[i]);
    }
    if (f.out == nullptr) continue;
    V of_row;
    FASTGEMM_UNROLL
    for (int i = 0; i < kEach; ++i) of_row[i] = round_to<T>(weight * widen(of_result[i]));
    store_vector(out + column, of_row);
  }
  if (g.of_weights.data == nullptr) return;
  FASTGEMM_UNROLL
  for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
  if (lane == 0)
    with_floats(g.of_weights, [&](auto* x) {
      using W = std::remove_pointer_t<decltype(x)>;
      x[pair] = round_to<W>(Accumulator<W>(dot));
      return 0;
    });
}

template <class T>
bool begins_units(const void* p, int64_t row_stride) {
  return row_stride % kPer16Bytes<T> == 0 && is_aligned(static_cast<const T*>(p), 16);
}
template <class T>
bool is_in_vectors(const CombineRows& g) {
  return g.columns % kPer16Bytes<T> == 0 && begins_units<T>(g.y, g.row_stride) && begins_units<T>(g.out, 0);
}

// Calls body.operator()<T, in_vectors>().
template <class Body>
void with_kernel(const CombineRows& g, const void* grad, int64_t grad_stride, Body&& body) {
  with_element<double, float, Half, BFloat16>(g.type, [&]<class T>() {
    is_in_vectors<T>(g) && begins_units<T>(grad, grad_stride) ? body.template operator()<T, true>()
                                                              : body.template operator()<T, false>();
  });
}

}  // namespace

void combine_rows(const CombineRows& g, Context& context) {
  if (g.tokens == 0 || g.columns == 0) return;
  with_kernel(g, nullptr, 0, [&]<class T, bool in_vectors>() {
    const int64_t threads = ceil_div(g.columns, int64_t(sizeof(Numbers<T, in_vectors>) / sizeof(T)));
    const dim3 grid(unsigned(ceil_div(threads, kThreads)), unsigned(std::min<int64_t>(g.tokens, kMostRows)));
    launch<combine_rows_kernel<T, in_vectors>>("combine_rows", {grid, dim3(kThreads)}, context)(g);
  });
}

void combine_gradients(const CombineGradients& g, Context& context) {
  const CombineRows& f = g.forward;
  if (f.tokens == 0 || f.chosen == 0) return;
  with_kernel(f, g.grad, g.grad_stride, [&]<class T, bool in_vectors>() {
    const dim3 grid(unsigned(ceil_div(f.tokens * f.chosen, kThreads / 32)));
    launch<combine_gradients_kernel<T, in_vectors>>("combine_gradients", {grid, dim3(kThreads)}, context)(g);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
