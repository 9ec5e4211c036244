// The parameters of the add kernels, and the host code that prepares them.
#pragma once

#include "core/problem.h"
#include "cuda/device/dispatch.cuh"
#include "cuda/device/launch.cuh"
#include "cuda/device/vector.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// An operand and its strides in elements, 0 where it is broadcast.
template <class T>
struct AddSide {
  T* data;
  int64_t row_stride, col_stride;
  __device__ __forceinline__ T* at(int64_t row, int64_t col) const {
    return data + row * row_stride + col * col_stride;
  }
};

// out = a + alpha * b, rounded once. If only columns of out are contiguous, the problem is transposed, so
// that its rows are contiguous.
template <class T>
struct Add {
  using Acc = Accumulator<T>;
  int64_t rows, cols;
  AddSide<const T> a, b;
  AddSide<T> out;
  Acc alpha;

  __device__ __forceinline__ T sum(T x, T y) const {
    return round_to<T>(multiply_add(alpha, widen(y), widen(x)));
  }
};

// launch_one.operator()<T>(const Add<T>&) launches the kernel.
template <class Launch>
void run_add(const AddProblem& problem, Launch&& launch_one) {
  if (problem.rows <= 0 || problem.cols <= 0) return;
  const AddProblem p = problem.with_long_rows();
  with_any_element(p.type, [&]<class T>() {
    launch_one.template operator()<T>(
        Add<T>{p.rows,
               p.cols,
               {static_cast<const T*>(p.a.data), p.a.row_stride, p.a.col_stride},
               {static_cast<const T*>(p.b.data), p.b.row_stride, p.b.col_stride},
               {static_cast<T*>(p.out.data), p.out.row_stride, p.out.col_stride},
               scalar_of<Accumulator<T>>(p.alpha)});
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
