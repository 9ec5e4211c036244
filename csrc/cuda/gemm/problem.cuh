// What every GEMM kernel is given, and the dispatch from a GemmProblem to a kernel's element type.
#pragma once

#include <algorithm>

#include "core/problem.h"
#include "cuda/device/launch.cuh"
#include "cuda/device/numeric.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// One matrix of a batch, read in place. One of the strides is 1, unless the matrix is a single row or column.
template <class T>
struct Operand {
  const T* data;
  int64_t row_stride, col_stride, batch_stride;

  __device__ __forceinline__ const T* at(int64_t row, int64_t col) const {
    return data + row * row_stride + col * col_stride;
  }
};

// out = alpha * sum + beta * c, rounded once. Rows of out are contiguous (run_gemm sees to it). For 16-bit
// operands `wide` says that c and out are float32.
template <class T>
struct Result {
  using Acc = Accumulator<T>;
  using Narrow = std::conditional_t<std::is_same_v<Acc, uint32_t>, int32_t, T>;
  static constexpr bool kMayBeWide = sizeof(T) == 2;

  void* out;
  int64_t row_stride, batch_stride;
  const void* c;  // read only where beta != 0
  int64_t c_row_stride, c_col_stride, c_batch_stride;
  Acc alpha, beta;
  bool wide;

  // alpha * sum + beta * c, and its rounding into memory.
  template <class Out>
  __device__ __forceinline__ Acc blend(int64_t row, int64_t col, Acc sum) const {
    Acc value = alpha * sum;
    if (beta != Acc(0))
      value += beta * widen(static_cast<const Out*>(c)[row * c_row_stride + col * c_col_stride]);
    return value;
  }
  template <class Out>
  __device__ __forceinline__ void put(int64_t row, int64_t col, Acc value) const {
    static_cast<Out*>(out)[row * row_stride + col] = narrow<Out>(value);
  }
  template <class Out>
  __device__ __forceinline__ void store_as(int64_t row, int64_t col, Acc sum) const {
    put<Out>(row, col, blend<Out>(row, col, sum));
  }
  __device__ __forceinline__ void store(int64_t row, int64_t col, Acc sum) const {
    if constexpr (kMayBeWide) {
      if (wide) return store_as<float>(row, col, sum);
    }
    store_as<Narrow>(row, col, sum);
  }
  __host__ __device__ __forceinline__ int out_bytes() const {
    return kMayBeWide && wide ? 4 : int(sizeof(Narrow));
  }
};

// The problem as kernels get it. blockIdx.z counts the matrices of the batch; at_batch() points at one.
template <class T>
struct Gemm {
  using Acc = Accumulator<T>;
  int64_t m, n, k;
  Operand<T> a, b;
  Result<T> result;

  __host__ __device__ __forceinline__ Gemm at_batch(int64_t index) const {
    Gemm g = *this;
    g.a.data += index * a.batch_stride;
    g.b.data += index * b.batch_stride;
    g.result.out = static_cast<char*>(result.out) + index * result.batch_stride * result.out_bytes();
    g.result.c = static_cast<const char*>(result.c) + index * result.c_batch_stride * result.out_bytes();
    return g;
  }
};

// Scalars arrive as doubles; for integers they are whole numbers, taken modulo 2^32.
template <class Acc>
Acc scalar_of(double x) {
  if constexpr (std::is_same_v<Acc, uint32_t>)
    return uint32_t(int64_t(x));
  else
    return Acc(x);
}

template <class T>
Gemm<T> gemm_of(const GemmProblem& p) {
  using Acc = Accumulator<T>;
  Gemm<T> g;
  g.m = p.m, g.n = p.n, g.k = p.k;
  g.a = {static_cast<const T*>(p.a.data), p.a.row_stride, p.a.col_stride, p.a.batch_stride};
  g.b = {static_cast<const T*>(p.b.data), p.b.row_stride, p.b.col_stride, p.b.batch_stride};
  g.result = {p.out.data,
              p.out.row_stride,
              p.out.batch_stride,
              p.c.data,
              p.c.row_stride,
              p.c.col_stride,
              p.c.batch_stride,
              scalar_of<Acc>(p.alpha),
              scalar_of<Acc>(p.beta),
              p.out_type == DType::f32 && sizeof(T) == 2};
  return g;
}

// Calls body.operator()<T>() with the element type of the problem.
template <class Body>
void with_element(DType type, Body&& body) {
  switch (type) {
    case DType::f64:
      return body.template operator()<double>();
    case DType::f32:
      return body.template operator()<float>();
    case DType::f16:
      return body.template operator()<Half>();
    case DType::bf16:
      return body.template operator()<BFloat16>();
    case DType::i8:
      return body.template operator()<int8_t>();
    default:
      return body.template operator()<int32_t>();
  }
}

// What lies between the table and every kernel: empty problems return, a result with contiguous columns is
// computed as its transpose, and a batch larger than gridDim.z may be comes in pieces.
// launch_one.operator()<T>(const Gemm<T>&, int batch) launches the kernel for `batch` matrices.
template <class Launch>
void run_gemm(const GemmProblem& problem, Launch&& launch_one) {
  if (problem.batch <= 0 || problem.m <= 0 || problem.n <= 0) return;
  const bool contiguous_rows = problem.out.col_stride == 1 || problem.n == 1;
  const GemmProblem p = contiguous_rows ? problem : problem.transposed();
  constexpr int64_t kMostBlocksZ = 65535;
  with_element(p.type, [&]<class T>() {
    const Gemm<T> all = gemm_of<T>(p);
    for (int64_t first = 0; first < p.batch; first += kMostBlocksZ)
      launch_one.template operator()<T>(all.at_batch(first), int(std::min(kMostBlocksZ, p.batch - first)));
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
