// Vectors that one instruction loads or stores: at most 16 bytes, aligned to their size.
#pragma once

#include <cstring>

#include "cuda/device/sync.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  static_assert(sizeof(T) * N <= 16 && (N & (N - 1)) == 0);
  T v[N];
  __device__ __forceinline__ T& operator[](int i) { return v[i]; }
  __device__ __forceinline__ const T& operator[](int i) const { return v[i]; }
};

// The number of elements of T in 16 bytes.
template <class T>
inline constexpr int kPer16Bytes = 16 / int(sizeof(T));
template <class T>
using Vector16 = Vector<T, kPer16Bytes<T>>;
using Unit = Vector16<uint32_t>;

#if defined(__CUDACC__)

// Reads shared memory that may be uninitialized; the caller uses the value only if it was written. At the
// edges of a matrix it is cheaper to read a whole tile than to test each element. The simulator reports every
// other read of uninitialized memory.
template <class T>
__device__ __forceinline__ T load_speculative(const T& x) {
  return x;
}

// p must be aligned to the vector.

template <class V, class T>
__device__ __forceinline__ V load_vector(const T* p) {
  return *reinterpret_cast<const V*>(p);
}
template <class V, class T>
__device__ __forceinline__ void store_vector(T* p, const V& v) {
  *reinterpret_cast<V*>(p) = v;
}

// Does the same, in code where another branch stores single elements. There nvcc would split a plain vector
// store into single stores, to share these with that branch.
template <class V, class T>
__device__ __forceinline__ void store_vector_whole(T* global, const V& v) {
  uint32_t w[sizeof(V) / 4];
  std::memcpy(w, &v, sizeof v);
  if constexpr (sizeof(V) == 16) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(global)),
                 "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                 : "memory");
  } else {
    static_assert(sizeof(V) == 8);
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(global)), "r"(w[0]),
                 "r"(w[1])
                 : "memory");
  }
}
template <class V, class T>
__device__ __forceinline__ void store_vector_whole_shared(T* shared, const V& v) {
  static_assert(sizeof(V) == 16);
  uint32_t w[4];
  std::memcpy(w, &v, sizeof v);
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(shared)), "r"(w[0]), "r"(w[1]),
               "r"(w[2]), "r"(w[3])
               : "memory");
}

#else

using simt::load_speculative;

// These access a word of the vector's size. It is volatile, so that the compiler does not split it. They are
// inlined, so that the simulator's counters can tell apart the places that call them.
template <class V, class T>
__forceinline__ V load_vector(const T* p) {
  const simt::Word<sizeof(V)> word = *reinterpret_cast<const volatile simt::Word<sizeof(V)>*>(p);
  return std::bit_cast<V>(word);
}
template <class V, class T>
__forceinline__ void store_vector(T* p, const V& v) {
  *reinterpret_cast<volatile simt::Word<sizeof(V)>*>(p) = std::bit_cast<simt::Word<sizeof(V)>>(v);
}
template <class V, class T>
__forceinline__ void store_vector_whole(T* p, const V& v) {
  store_vector(p, v);
}
template <class V, class T>
__forceinline__ void store_vector_whole_shared(T* p, const V& v) {
  store_vector(p, v);
}

#endif

// The 16 bytes from byte `offset` (0 to 15) of low:high on. The offset is a multiple of Size.
template <int Size>
__device__ __forceinline__ Unit bytes_at(const Unit& low, const Unit& high, int offset) {
  uint32_t w[8] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2], high[3]};
  FASTGEMM_UNROLL
  for (int i = 0; i < 6; ++i) w[i] = offset & 8 ? w[i + 2] : w[i];
  if constexpr (Size <= 4) {
    FASTGEMM_UNROLL
    for (int i = 0; i < 5; ++i) w[i] = offset & 4 ? w[i + 1] : w[i];
  }
  Unit out;
  FASTGEMM_UNROLL
  for (int i = 0; i < 4; ++i)
    out[i] = Size <= 2 ? uint32_t(((uint64_t(w[i + 1]) << 32) | w[i]) >> (8 * (offset & 3))) : w[i];
  return out;
}

template <class T>
__host__ __device__ __forceinline__ bool is_aligned(const T* p, size_t bytes) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

}  // namespace fastgemm::FASTGEMM_TARGET
