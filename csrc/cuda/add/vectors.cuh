// Rows of an add as vectors of V elements, shared by levels 4 and 5: 16 bytes where the operands allow it,
// else single elements of any strides.
#pragma once

#include "cuda/add/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Vectors count from the 16-byte boundary at or before the start of each row of out: `lead` elements of a
// row's first vector lie before the row. a and b share the boundaries or are one element for the whole row
// (splat).
template <class T, int V>
struct AddVectors {
  using Values = Vector<T, V>;
  Add<T> add;
  int64_t per_row;
  int lead;

  struct Place {
    int64_t row, col;  // col may be negative
    bool whole;
  };
  __device__ __forceinline__ Place place(int64_t index) const {
    const int64_t row = index / per_row, col = (index - row * per_row) * V - lead;
    return {row, col, V == 1 || (col >= 0 && col + V <= add.cols)};
  }
  // Only whole vectors; their strides within a row are 1 or 0 unless V is 1.
  __device__ __forceinline__ Values load(const AddSide<const T>& side, const Place& p) const {
    const T* const from = side.at(p.row, p.col);
    if (V == 1 || side.col_stride != 0) return load_vector<Values>(from);
    Values v;
    const T value = *from;
    FASTGEMM_UNROLL
    for (int i = 0; i < V; ++i) v[i] = value;
    return v;
  }
  __device__ __forceinline__ void store_sum(const Place& p, const Values& a, const Values& b) const {
    Values v;
    FASTGEMM_UNROLL
    for (int i = 0; i < V; ++i) v[i] = add.sum(a[i], b[i]);
    store_vector(add.out.at(p.row, p.col), v);
  }
  // What a vector at the end of a row has of it.
  __device__ __forceinline__ void add_elements(const Place& p) const {
    const int64_t end = min(p.col + V, add.cols);
    FASTGEMM_NO_UNROLL
    for (int64_t col = max(p.col, int64_t(0)); col < end; ++col)
      *add.out.at(p.row, col) = add.sum(*add.a.at(p.row, col), *add.b.at(p.row, col));
  }
};

// One thread for `Unroll` vectors, all of them loaded before the first is stored.
template <class T, int V, int Threads, int Unroll>
__global__ void __launch_bounds__(Threads) add_vectors_kernel(AddVectors<T, V> vectors) {
  const int64_t first = int64_t(blockIdx.x) * (Threads * Unroll) + threadIdx.x;
  const int64_t count = vectors.per_row * vectors.add.rows;
  typename AddVectors<T, V>::Place place[Unroll];
  Vector<T, V> a[Unroll], b[Unroll];
  FASTGEMM_UNROLL
  for (int u = 0; u < Unroll; ++u) {
    if (first + u * Threads >= count) break;
    place[u] = vectors.place(first + u * Threads);
    if (!place[u].whole) continue;
    a[u] = vectors.load(vectors.add.a, place[u]);
    b[u] = vectors.load(vectors.add.b, place[u]);
  }
  FASTGEMM_UNROLL
  for (int u = 0; u < Unroll; ++u) {
    if (first + u * Threads >= count) break;
    place[u].whole ? vectors.store_sum(place[u], a[u], b[u]) : vectors.add_elements(place[u]);
  }
}

template <int V, int Threads, int Unroll, class T>
void launch_by(const char* name, const Add<T>& add, int lead, Context& context) {
  const AddVectors<T, V> vectors{add, ceil_div(add.cols + lead, V), lead};
  const int64_t blocks = ceil_div(vectors.per_row * add.rows, Threads * Unroll);
  launch<add_vectors_kernel<T, V, Threads, Unroll>>(name, {dim3(unsigned(blocks)), dim3(Threads)},
                                                    context)(vectors);
}

template <int Threads, int Unroll>
void launch_vectors(const char* name, const AddProblem& p, Context& context) {
  run_add(p, [&]<class T>(const Add<T>& add) {
    constexpr int V = kPer16Bytes<T>;
    const int lead = int(reinterpret_cast<uintptr_t>(add.out.data) / sizeof(T) % V);
    const auto in_step = [&](const auto& side) {
      return (side.col_stride == 1 || add.cols == 1) && is_aligned(side.data - lead, 16) &&
             (side.row_stride % V == 0 || add.rows == 1);
    };
    const bool by_16_bytes = in_step(add.out) && (in_step(add.a) || add.a.col_stride == 0) &&
                             (in_step(add.b) || add.b.col_stride == 0);
    if (by_16_bytes)
      launch_by<V, Threads, Unroll>(name, add, lead, context);
    else
      launch_by<1, Threads, Unroll>(name, add, 0, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
