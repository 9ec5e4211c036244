// Rows of an add as vectors of V elements, for levels 4 and 5: 16 bytes if the operands allow it, otherwise
// single elements with any strides.
#pragma once

#include "cuda/add/problem.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Adds elements of T that are packed in a word: 32 bits hold two 16-bit elements or four bytes. Vectors are
// kept packed as long as possible, because 16 unpacked bytes would take 16 registers instead of 4.
template <class T>
struct Packed {
  using Word = T;
  static __device__ __forceinline__ Word repeat(T x) { return x; }
  static __device__ __forceinline__ Word sum(const Add<T>& add, Word a, Word b) { return add.sum(a, b); }
};

template <class T>
struct PackedHalves {
  using Word = uint32_t;
  static __device__ __forceinline__ Word repeat(T x) { return x.bits * 0x10001u; }
  static __device__ __forceinline__ Word sum(const Add<T>& add, Word a, Word b) {
    const T low = add.sum(T{uint16_t(a)}, T{uint16_t(b)});
    const T high = add.sum(T{uint16_t(a >> 16)}, T{uint16_t(b >> 16)});
    return low.bits | uint32_t(high.bits) << 16;
  }
};
template <>
struct Packed<Half> : PackedHalves<Half> {};
template <>
struct Packed<BFloat16> : PackedHalves<BFloat16> {};

// Multiplies two bytes of a word at once, each in 16 bits: 255 + 255 * 255 < 2^16. Bytes wrap modulo 2^8.
template <class T>
struct PackedBytes {
  using Word = uint32_t;
  static __device__ __forceinline__ Word repeat(T x) { return uint8_t(x) * 0x1010101u; }
  static __device__ __forceinline__ Word sum(const Add<T>& add, Word a, Word b) {
    constexpr Word kEven = 0x00ff00ff;
    const Word alpha = add.alpha & 0xff;
    const Word even = (a & kEven) + (b & kEven) * alpha;
    const Word odd = (a >> 8 & kEven) + (b >> 8 & kEven) * alpha;
    return (even & kEven) | (odd & kEven) << 8;
  }
};
template <>
struct Packed<int8_t> : PackedBytes<int8_t> {};
template <>
struct Packed<uint8_t> : PackedBytes<uint8_t> {};

template <>
struct Packed<int16_t> {
  using Word = uint32_t;
  static __device__ __forceinline__ Word repeat(int16_t x) { return uint16_t(x) * 0x10001u; }
  static __device__ __forceinline__ Word sum(const Add<int16_t>& add, Word a, Word b) {
    return ((a + b * add.alpha) & 0xffff) | ((a >> 16) + (b >> 16) * add.alpha) << 16;
  }
};

// Vectors are counted from the 16-byte boundary at or before the start of each row of out: `lead` elements of
// a row's first vector lie before the row. a and b have the same boundaries, or one element for the whole
// row.
template <class T, int V>
struct AddVectors {
  using Pack = Packed<T>;
  using Word = typename Pack::Word;
  static constexpr int kWords = V * sizeof(T) / sizeof(Word);
  using Values = Vector<Word, kWords>;
  Add<T> add;
  int64_t per_row;
  int lead;

  struct Place {
    int64_t row, col;  // col may be negative, by `lead`
    bool whole;
  };
  __device__ __forceinline__ Place place(int64_t index) const {
    const int64_t row = add.rows == 1 ? 0 : index / per_row, col = (index - row * per_row) * V - lead;
    return {row, col, col >= 0 && col + V <= add.cols};
  }
  // Loads a vector that lies inside a row, with stride 1 or 0.
  __device__ __forceinline__ Values load(const AddSide<const T>& side, const Place& p) const {
    const T* const from = side.at(p.row, p.col);
    if (side.col_stride != 0) return load_vector<Values>(from);
    Values v;
    const Word word = Pack::repeat(*from);
    FASTGEMM_UNROLL
    for (int i = 0; i < kWords; ++i) v[i] = word;
    return v;
  }
  __device__ __forceinline__ void store_sum(const Place& p, const Values& a, const Values& b) const {
    Values v;
    FASTGEMM_UNROLL
    for (int i = 0; i < kWords; ++i) v[i] = Pack::sum(add, a[i], b[i]);
    store_vector(add.out.at(p.row, p.col), v);
  }
  // Adds the elements of an incomplete vector at an end of a row.
  __device__ __forceinline__ void add_elements(const Place& p) const {
    const int64_t end = min(p.col + V, add.cols);
    FASTGEMM_NO_UNROLL
    for (int64_t col = max(p.col, int64_t(0)); col < end; ++col)
      *add.out.at(p.row, col) = add.sum(*add.a.at(p.row, col), *add.b.at(p.row, col));
  }
};

// Single elements, of any strides.
template <class T>
struct AddVectors<T, 1> {
  struct Values {
    T value;
  };
  Add<T> add;
  int64_t per_row;
  int lead;

  struct Place {
    int64_t row, col;
    static constexpr bool whole = true;
  };
  __device__ __forceinline__ Place place(int64_t index) const {
    const int64_t row = add.rows == 1 ? 0 : index / per_row;
    return {row, index - row * per_row};
  }
  __device__ __forceinline__ Values load(const AddSide<const T>& side, const Place& p) const {
    return {*side.at(p.row, p.col)};
  }
  __device__ __forceinline__ void store_sum(const Place& p, const Values& a, const Values& b) const {
    *add.out.at(p.row, p.col) = add.sum(a.value, b.value);
  }
  __device__ __forceinline__ void add_elements(const Place&) const {}
};

// Each thread adds `Unroll` vectors. It loads all of them before it stores the first.
template <class T, int V, int Threads, int Unroll>
__global__ void __launch_bounds__(Threads, 1024 / Threads) add_vectors_kernel(AddVectors<T, V> vectors) {
  const int64_t first = int64_t(blockIdx.x) * (Threads * Unroll) + threadIdx.x;
  const int64_t count = vectors.per_row * vectors.add.rows;
  typename AddVectors<T, V>::Place place[Unroll];
  typename AddVectors<T, V>::Values a[Unroll], b[Unroll];
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
  const LaunchShape shape{dim3(unsigned(ceil_div(vectors.per_row * add.rows, Threads * Unroll))),
                          dim3(Threads)};
  launch<add_vectors_kernel<T, V, Threads, Unroll>>(name, shape, context)(vectors);
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
      launch_by<1, Threads, 2 * Unroll>(name, add, 0, context);  // twice as many, because they are narrower
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
