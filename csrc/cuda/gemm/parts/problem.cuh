// The arguments of every GEMM kernel, and the dispatch from a GemmProblem to a kernel's element type.
//
//   GemmProblem --[run_gemm]--> Gemm<T>    A (m, k) * B (k, n) -> out (m, n) = alpha * A B + beta * c
//     any type, C by rows       C by rows
//     or by columns             (C^T = B^T A^T where it lay by columns)
#pragma once

#include "core/min_max.h"
#include "cuda/device/dispatch.cuh"
#include "cuda/device/launch.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// A matrix of a batch, read in place. One of the strides is 1, unless it is a single row or column.
template <class T>
struct Operand {
  const T* data;
  int64_t row_stride, col_stride, batch_stride;

  __device__ __forceinline__ const T* at(int64_t row, int64_t col) const {
    return data + row * row_stride + col * col_stride;
  }
};

// out = alpha * sum + beta * c, rounded once. Rows of out are contiguous (run_gemm sees to it). If `wide`
// is set, c and out are float32 for Half and BFloat16, and int64 for LongInt16; else they are Stored.
template <class T>
struct Result {
  using Acc = Accumulator<T>;
  using Stored = std::conditional_t<std::is_same_v<Acc, uint32_t> || kIsLong<T>, int32_t, T>;
  static constexpr bool kMayBeWide = kIsHalf<T> || kIsLong<T>;

  void* out;
  int64_t row_stride, batch_stride;
  const void* c;  // read only where beta != 0
  int64_t c_row_stride, c_col_stride, c_batch_stride;
  Acc alpha, beta;
  bool wide;

  template <class Out>
  __device__ __forceinline__ Acc blend(int64_t row, int64_t col, Acc sum) const {
    Acc value = alpha * sum;
    if (beta != Acc(0))
      value += beta * widen(static_cast<const Out*>(c)[row * c_row_stride + col * c_col_stride]);
    return value;
  }
  template <class Out>
  __device__ __forceinline__ void put(int64_t row, int64_t col, Acc value) const {
    static_cast<Out*>(out)[row * row_stride + col] = round_to<Out>(value);
  }
  template <class Out>
  __device__ __forceinline__ void store_as(int64_t row, int64_t col, Acc sum) const {
    put<Out>(row, col, blend<Out>(row, col, sum));
  }
  __device__ __forceinline__ void store(int64_t row, int64_t col, Acc sum) const {
    if constexpr (kMayBeWide) {
      if (wide) return store_as<WideResult<T>>(row, col, sum);
    }
    store_as<Stored>(row, col, sum);
  }
  __host__ __device__ __forceinline__ int out_bytes() const {
    return kMayBeWide && wide ? int(sizeof(WideResult<T>)) : int(sizeof(Stored));
  }
};

// Calls body.operator()<Out>() with the type of the elements of out and c.
template <class T, class Body>
__device__ __forceinline__ void with_stored_type(const Result<T>& r, Body&& body) {
  if constexpr (Result<T>::kMayBeWide) {
    if (r.wide) return body.template operator()<float>();
  }
  body.template operator()<typename Result<T>::Stored>();
}

// The problem as kernels get it. blockIdx.z counts the matrices of the batch, and at_batch() selects one.
template <class T>
struct Gemm {
  using Element = T;
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
  __device__ __forceinline__ void store(int64_t row, int64_t col, Acc x) const { result.store(row, col, x); }
};

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
              Result<T>::kMayBeWide && p.out_type == (kIsHalf<T> ? DType::f32 : DType::i64)};
  return g;
}

// out = beta * c, which is the product for k = 0.
template <class T>
void scale_c(const Gemm<T>&, int batch, Context&);

// Everything between the table and a kernel that is instantiated for element types T: empty results and k
// = 0 are handled here, a C by columns is computed as its transpose, and a batch larger than gridDim.z may
// be is launched in pieces. launch(const Gemm<T>&, int batch) launches the kernel for `batch` matrices.
template <class... T, class Launch>
void run_gemm(const GemmProblem& problem, Context& context, Launch&& launch) {
  if (problem.batch <= 0 || problem.m <= 0 || problem.n <= 0) return;
  const bool in_rows = problem.out.col_stride == 1 || problem.n == 1;
  const GemmProblem p = in_rows ? problem : problem.transposed();
  with_element<T...>(p.type, [&]<class Element>() {
    constexpr int64_t kMostBlocksZ = 65535;
    const Gemm<Element> all = gemm_of<Element>(p);
    for (int64_t first = 0; first < p.batch; first += kMostBlocksZ) {
      const Gemm<Element> g = all.at_batch(first);
      const int batch = int(std::min(kMostBlocksZ, p.batch - first));
      g.k > 0 ? launch(g, batch) : scale_c(g, batch, context);
    }
  });
}
template <class Launch>
void run_every_type(const GemmProblem& p, Context& context, Launch&& launch) {
  run_gemm<double, float, Half, BFloat16, int8_t, int32_t, int64_t, uint8_t, int16_t>(p, context, launch);
}

}  // namespace fastgemm::FASTGEMM_TARGET
