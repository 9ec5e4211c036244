// Stores a tile: out = alpha * tile + beta * c, or with an epilogue activation(scales * alpha * tile + bias)
// + beta * c. Results are rounded once to the type of out.
#pragma once

#include "cpu/gemm/activation.h"

namespace fastgemm::FASTGEMM_ISA {

template <class Out>
struct OutputBlock {
  const Out* c;
  int64_t c_rs, c_cs;
  Out* out;  // rows contiguous
  int64_t ld;
  // Set if the problem has an epilogue; bias may still be null.
  bool finishes = false;
  Activation activation = Activation::none;
  const Out* bias = nullptr;
  int64_t bias_rs = 0, bias_cs = 0;
  LineScales row_scales = {}, column_scales = {};

  OutputBlock at(int64_t i, int64_t j) const {
    OutputBlock o = *this;
    if (c) o.c += i * c_rs + j * c_cs;
    if (bias) o.bias += i * bias_rs + j * bias_cs;
    if (row_scales.data) o.row_scales.data += i * row_scales.stride;
    if (column_scales.data) o.column_scales.data += j * column_scales.stride;
    o.out += i * ld + j;
    return o;
  }
};

// c is null if beta is 0.
template <class Out>
OutputBlock<Out> output_of(const GemmProblem& p, int64_t batch) {
  const Out* c = p.beta != 0 ? static_cast<const Out*>(p.c.data) + batch * p.c.batch_stride : nullptr;
  const Epilogue& e = p.epilogue;
  return {c,
          p.c.row_stride,
          p.c.col_stride,
          static_cast<Out*>(p.out.data) + batch * p.out.batch_stride,
          p.out.row_stride,
          e.asked() || p.scales.asked,
          e.activation,
          static_cast<const Out*>(e.bias),
          e.bias_row_stride,
          e.bias_col_stride,
          p.scales.rows,
          p.scales.columns};
}

// A vector of a row of c from column j on, or a part of one. The rows of a c of shape (1, 1) or (m, 1) have
// one number for all columns.
template <class Acc, class Out, class Part>
FASTGEMM_INLINE Vector<Acc> load_c(const OutputBlock<Out>& o, int64_t i, int64_t j, Part vector) {
  const Out* row = o.c + i * o.c_rs;
  return o.c_cs == 0 ? broadcast<Vector<Acc>>(widen(*row)) : vector.load(row + j);
}

// The same with scales, bias and activation.
template <class Acc, class Out>
void store_finished(const Acc* tile, int64_t tile_ld, int rows, int cols, Acc alpha, Acc beta,
                    const OutputBlock<Out>& o) {
  using V = Vector<Acc>;
  constexpr int N = kLanes<Acc>;
  const bool scaled = o.row_scales.data || o.column_scales.data;
  const bool vectors = (beta == Acc{0} || o.c_cs == 1 || o.c_cs == 0) && (!o.bias || o.bias_cs == 1) &&
                       (o.column_scales.stride == 0 || o.column_scales.stride == 1);
  const LineScales &by_row = o.row_scales, &by_column = o.column_scales;
  const bool column_vectors = by_column.stride == 1;
  const Acc of_all = by_column.data && by_column.stride == 0 ? Acc(by_column.data[0]) : Acc(1);
  const auto scale_of_row = [&](int64_t i) {
    return by_row.data ? Acc(by_row.data[i * by_row.stride]) : Acc(1);
  };
  const bool parts = worth_a_vector<Acc>(cols % N);
  const int done = !vectors ? 0 : parts ? cols : cols / N * N;
  for (int i = 0; i < rows && done > 0; ++i) {
    const Acc of_row = scale_of_row(i);
    const Acc* t = tile + i * tile_ld;
    const Out* bias = o.bias ? o.bias + i * o.bias_rs : nullptr;
    Out* out = o.out + i * o.ld;
    const auto finish = [&](auto vector, int j) {
      V v = vector.load(t + j) * alpha;
      if (scaled) {
        v *= of_row;
        if constexpr (std::is_same_v<Acc, float>)
          v *= column_vectors ? vector.load(by_column.data + j) : broadcast<V>(of_all);
      }
      if (bias) v += vector.load(bias + j);
      v = activate_vector(o.activation, v);
      if (beta != Acc{0}) v += load_c<Acc>(o, i, j, vector) * beta;
      vector.store(out + j, v);
    };
    int j = 0;
    for (; j + N <= cols; j += N) finish(WholeVector{}, j);
    if (j < done) finish(PartOfVector{cols - j}, j);
  }
  const auto before = [&](int64_t i, int64_t j) {
    j += done;
    Acc x = tile[i * tile_ld + j] * alpha;
    if (scaled)
      x *= scale_of_row(i), x *= by_column.data ? Acc(by_column.data[j * by_column.stride]) : Acc(1);
    if (o.bias) x += widen(o.bias[i * o.bias_rs + j * o.bias_cs]);
    return x;
  };
  activate_rest<Acc>(o.activation, rows, cols - done, before, [&](int64_t i, int64_t j, Acc x) {
    j += done;
    if (beta != Acc{0}) x += widen(o.c[i * o.c_rs + j * o.c_cs]) * beta;
    o.out[i * o.ld + j] = round_to<Out>(x);
  });
}

template <class Acc, class Out>
void store_numbers(const Acc* tile, int64_t tile_ld, int rows, int cols, Acc alpha, Acc beta,
                   const OutputBlock<Out>& o) {
  if constexpr (!std::is_integral_v<Acc>) {
    if (o.finishes) return store_finished(tile, tile_ld, rows, cols, alpha, beta, o);
  }
  using V = Vector<Acc>;
  constexpr int N = kLanes<Acc>;
  // If floating-point numbers need no conversion, the compiler makes vectors of the loop at the end, and
  // rounds the product of beta and a broadcast c first. Vectors of load_c() would change those bits.
  constexpr bool broadcasts = std::is_integral_v<Acc> || !std::is_same_v<Acc, Out>;
  const bool vector_c = beta == Acc{0} || o.c_cs == 1 || (broadcasts && o.c_cs == 0);
  for (int i = 0; i < rows; ++i) {
    const Acc* t = tile + i * tile_ld;
    Out* out = o.out + i * o.ld;
    int j = 0;
    if (vector_c) {
      for (; j + N <= cols; j += N) {
        V v = load<V>(t + j) * alpha;
        if constexpr (broadcasts) {
          if (beta != Acc{0}) v += load_c<Acc>(o, i, j, WholeVector{}) * beta;
        } else {
          if (beta != Acc{0}) v += load_widened(o.c + i * o.c_rs + j) * beta;
        }
        store_narrowed<Out, Acc>(out + j, v);
      }
    }
    for (; j < cols; ++j) {
      Acc x = t[j] * alpha;
      if (beta != Acc{0}) x += widen(o.c[i * o.c_rs + j * o.c_cs]) * beta;
      out[j] = round_to<Out>(x);
    }
  }
}

// Complex numbers, whose parts are scaled separately. If the columns of c are adjacent, its rows are read as
// rows of parts.
template <class T>
void store_parts(const Complex<T>* tile, int64_t tile_ld, int rows, int cols, T alpha, T beta,
                 const OutputBlock<Complex<T>>& o) {
  if (beta == T{0} || o.c_cs == 1) {
    const OutputBlock<T> parts{reinterpret_cast<const T*>(o.c), 2 * o.c_rs, 1, reinterpret_cast<T*>(o.out),
                               2 * o.ld};
    return store_numbers(reinterpret_cast<const T*>(tile), 2 * tile_ld, rows, 2 * cols, alpha, beta, parts);
  }
  for (int i = 0; i < rows; ++i)
    for (int j = 0; j < cols; ++j)
      o.out[i * o.ld + j] = alpha * tile[i * tile_ld + j] + beta * o.c[i * o.c_rs + j * o.c_cs];
}

template <class Acc, class Out>
void store_tile(const Acc* tile, int64_t tile_ld, int rows, int cols, Scale<Acc> alpha, Scale<Acc> beta,
                OutputBlock<Out> o) {
  if constexpr (kIsComplex<Acc>) {
    return store_parts(tile, tile_ld, rows, cols, alpha, beta, o);
  } else {
    store_numbers(tile, tile_ld, rows, cols, alpha, beta, o);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
