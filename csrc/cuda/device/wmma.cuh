// Tensor cores by CUDA's wmma (16-bit types: sm_75+; other types: sm_80+). A warp loads, multiplies and
// stores tiles, and CUDA does not say how they are distributed over registers. wmma is easy to use and
// portable, but gives no control over how shared memory is read.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/sync.cuh"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#else
#include "simt/matrix.h"
#endif

namespace fastgemm::FASTGEMM_TARGET {

// Tiles a (kM, kK), b (kK, kN), c (kM, kN) of T: Half, BFloat16, int8_t, Tf32 (of float in memory) or double.
template <class T>
struct WmmaShape {
  static constexpr int kM = 16, kN = 16, kK = 16;
  using Element = T;
};
template <>
struct WmmaShape<Tf32> {
  static constexpr int kM = 16, kN = 16, kK = 8;
  using Element = float;
};
template <>
struct WmmaShape<double> {
  static constexpr int kM = 8, kN = 8, kK = 4;
  using Element = double;
};

// Which index runs fastest in memory.
enum class Order { row_major, column_major };

// All addresses must be multiples of 32 bytes, and all leading dimensions multiples of 16 bytes.

#if defined(__CUDACC__)

template <class T>
struct WmmaTypes {
  using Operand = T;
  using Sum = T;
};
template <>
struct WmmaTypes<Half> {
  using Operand = __half;
  using Sum = float;
};
template <>
struct WmmaTypes<BFloat16> {
  using Operand = __nv_bfloat16;
  using Sum = float;
};
template <>
struct WmmaTypes<Tf32> {
  using Operand = nvcuda::wmma::precision::tf32;
  using Sum = float;
};
template <>
struct WmmaTypes<int8_t> {
  using Operand = signed char;
  using Sum = int;
};

template <class T, class Use, class Element, class... Layout>
using WmmaFragment =
    nvcuda::wmma::fragment<Use, WmmaShape<T>::kM, WmmaShape<T>::kN, WmmaShape<T>::kK, Element, Layout...>;
template <Order order>
using WmmaLayout =
    std::conditional_t<order == Order::row_major, nvcuda::wmma::row_major, nvcuda::wmma::col_major>;

template <class T, Order order>
struct WmmaA {
  WmmaFragment<T, nvcuda::wmma::matrix_a, typename WmmaTypes<T>::Operand, WmmaLayout<order>> native;
};
template <class T, Order order>
struct WmmaB {
  WmmaFragment<T, nvcuda::wmma::matrix_b, typename WmmaTypes<T>::Operand, WmmaLayout<order>> native;
};
// A lane holds size() sums. Code may change all of them in the same way: scale them, or add those of another
// tile.
template <class T>
struct WmmaC {
  WmmaFragment<T, nvcuda::wmma::accumulator, typename WmmaTypes<T>::Sum> native;
  __device__ __forceinline__ static constexpr int size() { return decltype(native)::num_elements; }
  __device__ __forceinline__ auto& operator[](int i) { return native.x[i]; }
};

template <Order order>
inline constexpr nvcuda::wmma::layout_t kWmmaOrder =
    order == Order::row_major ? nvcuda::wmma::mem_row_major : nvcuda::wmma::mem_col_major;

template <class T>
__device__ __forceinline__ void wmma_fill(WmmaC<T>& c, Accumulator<T> x) {
  nvcuda::wmma::fill_fragment(c.native, typename WmmaTypes<T>::Sum(x));
}
template <class Tile>
__device__ __forceinline__ void wmma_round(Tile& tile) {
  FASTGEMM_UNROLL
  for (int i = 0; i < tile.native.num_elements; ++i)
    tile.native.x[i] = __uint_as_float(to_tf32(tile.native.x[i]).bits);
}
// Rounds to Tf32.
template <template <class, Order> class Tile, class T, Order order>
__device__ __forceinline__ void wmma_load(Tile<T, order>& tile, const typename WmmaShape<T>::Element* p,
                                          int ld) {
  using Stored = typename decltype(tile.native)::storage_element_type;
  nvcuda::wmma::load_matrix_sync(tile.native, reinterpret_cast<const Stored*>(p), unsigned(ld));
  if constexpr (std::is_same_v<T, Tf32>) wmma_round(tile);
}

template <class T>
struct WmmaText;
template <>
struct WmmaText<BFloat16> {
  static constexpr char kText[] = "m16n16k16.shared.bf16";
};
template <>
struct WmmaText<Tf32> {
  static constexpr char kText[] = "m16n16k8.shared.tf32";
};
template <bool is_a, bool is_row_major>
struct WmmaOperandText {
  static constexpr char kText[] = "a.sync.aligned.row";
};
template <>
struct WmmaOperandText<true, false> {
  static constexpr char kText[] = "a.sync.aligned.col";
};
template <>
struct WmmaOperandText<false, true> {
  static constexpr char kText[] = "b.sync.aligned.row";
};
template <>
struct WmmaOperandText<false, false> {
  static constexpr char kText[] = "b.sync.aligned.col";
};

// The same from shared memory. For Half and int8_t, CUDA's own function tells the compiler that it is shared
// memory. For the other types it leaves generic loads, several instead of one ldmatrix.
template <template <class, Order> class Tile, class T, Order order>
__device__ __forceinline__ void wmma_load_shared(Tile<T, order>& tile,
                                                 const typename WmmaShape<T>::Element* p, int ld) {
  if constexpr (!std::is_same_v<T, BFloat16> && !std::is_same_v<T, Tf32>) {
    wmma_load(tile, p, ld);
  } else {
    using Text = WmmaOperandText<std::is_same_v<Tile<T, order>, WmmaA<T, order>>, order == Order::row_major>;
    auto& r = reinterpret_cast<uint32_t(&)[4]>(tile.native);
    asm volatile("wmma.load.%6.%7 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)), "r"(ld), "C"(Text::kText), "C"(WmmaText<T>::kText)
                 : "memory");
    if constexpr (std::is_same_v<T, Tf32>) wmma_round(tile);
  }
}
// c += a * b.
template <class T, Order order_a, Order order_b>
__device__ __forceinline__ void wmma_multiply(WmmaC<T>& c, const WmmaA<T, order_a>& a,
                                              const WmmaB<T, order_b>& b) {
  nvcuda::wmma::mma_sync(c.native, a.native, b.native, c.native);
}
template <Order order, class T>
__device__ __forceinline__ void wmma_store(Accumulator<T>* p, const WmmaC<T>& c, int ld) {
  nvcuda::wmma::store_matrix_sync(reinterpret_cast<typename WmmaTypes<T>::Sum*>(p), c.native, unsigned(ld),
                                  kWmmaOrder<order>);
}

#else

// A tile is fragments of mma, side by side along n.
template <class T>
using WmmaPart = MmaLayout<T, WmmaShape<T>::kM, WmmaShape<T>::kK>;
template <class T>
inline constexpr int kWmmaParts = WmmaShape<T>::kN / 8;

template <class T, Order order>
struct WmmaA {
  static constexpr int kParts = 1, kElements = WmmaPart<T>::kA;
  T elements[kParts][kElements];
  static Position place(int lane, int, int i) { return WmmaPart<T>::a(lane, i); }
};
template <class T, Order order>
struct WmmaB {
  static constexpr int kParts = kWmmaParts<T>, kElements = WmmaPart<T>::kB;
  T elements[kParts][kElements];
  static Position place(int lane, int part, int i) {
    const Position p = WmmaPart<T>::b(lane, i);
    return {p.row, 8 * part + p.column};
  }
};
template <class T>
struct WmmaC {
  static constexpr int kParts = kWmmaParts<T>, kElements = WmmaPart<T>::kC;
  Accumulator<T> elements[kParts][kElements];
  static constexpr int size() { return kParts * kElements; }
  Accumulator<T>& operator[](int i) { return elements[i / kElements][i % kElements]; }
};

template <Order order>
constexpr int64_t wmma_offset(Position p, int ld) {
  return order == Order::row_major ? int64_t{p.row} * ld + p.column : int64_t{p.column} * ld + p.row;
}

template <class T>
__forceinline__ void wmma_fill(WmmaC<T>& c, Accumulator<T> x) {
  for (int i = 0; i < c.size(); ++i) c[i] = x;
}
template <template <class, Order> class Tile, class T, Order order>
__forceinline__ void wmma_load(Tile<T, order>& tile, const typename WmmaShape<T>::Element* p, int ld) {
  check_wmma_address(p, ld * int(sizeof(*p)));
  for (int part = 0; part < tile.kParts; ++part)
    for (int i = 0; i < tile.kElements; ++i) {
      const auto x = p[wmma_offset<order>(tile.place(runtime::lane_index(), part, i), ld)];
      if constexpr (std::is_same_v<T, Tf32>)
        tile.elements[part][i] = to_tf32(x);
      else
        tile.elements[part][i] = x;
    }
}
template <template <class, Order> class Tile, class T, Order order>
__forceinline__ void wmma_load_shared(Tile<T, order>& tile, const typename WmmaShape<T>::Element* p, int ld) {
  wmma_load(tile, p, ld);
}
template <class T, Order order_a, Order order_b>
__forceinline__ void wmma_multiply(WmmaC<T>& c, const WmmaA<T, order_a>& a, const WmmaB<T, order_b>& b) {
  for (int part = 0; part < c.kParts; ++part)
    emulate_mma<T, WmmaShape<T>::kM, WmmaShape<T>::kK>(c.elements[part], a.elements[0], b.elements[part]);
}
template <Order order, class T>
__forceinline__ void wmma_store(Accumulator<T>* p, const WmmaC<T>& c, int ld) {
  check_wmma_address(p, ld * int(sizeof(*p)));
  for (int part = 0; part < c.kParts; ++part)
    for (int i = 0; i < c.kElements; ++i) {
      const Position at = WmmaPart<T>::c(runtime::lane_index(), i);
      p[wmma_offset<order>({at.row, 8 * part + at.column}, ld)] = c.elements[part][i];
    }
}

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
