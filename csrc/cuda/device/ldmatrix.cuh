// ldmatrix (sm_75+) and stmatrix (sm_90): move matrices of 8 x 8 16-bit elements, or 8 rows of 16 bytes of
// any type, between shared memory and the fragments of mma. Element by element this would take 8 instructions
// and have bank conflicts. Here 8 rows in 8 different groups of 4 banks have none.
#pragma once

#include "cuda/device/fragment.cuh"
#include "cuda/device/sync.cuh"

#if !defined(__CUDACC__)
#include "simt/matrix.h"
#endif

namespace fastgemm::FASTGEMM_TARGET {

#if defined(__CUDACC__)

template <bool transposed>
struct MatrixMode {
  static constexpr char kText[] = "";
};
template <>
struct MatrixMode<true> {
  static constexpr char kText[] = ".trans";
};

// Loads 1, 2 or 4 matrices into one register each. matrix_element() says which elements a lane gets. Lane 8 *
// j + r gives the address of row r of matrix j, which must be 16-byte aligned. Addresses of lanes beyond the
// last matrix are ignored.
template <int matrices, bool transposed = false>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[matrices], const void* row) {
  static_assert(matrices == 1 || matrices == 2 || matrices == 4);
  const uint32_t address = shared_address(row);
  using Mode = MatrixMode<transposed>;
  if constexpr (matrices == 1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1%2.shared.b16 {%0}, [%1];"
                 : "=r"(to[0])
                 : "r"(address), "C"(Mode::kText)
                 : "memory");
  else if constexpr (matrices == 2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2%3.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1])
                 : "r"(address), "C"(Mode::kText)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4%5.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address), "C"(Mode::kText)
                 : "memory");
}

// Stores matrices from registers, as load_matrices() loads them.
template <int matrices, bool transposed = false>
__device__ __forceinline__ void store_matrices(void* row, const uint32_t (&from)[matrices]) {
  static_assert(matrices == 1 || matrices == 2 || matrices == 4);
  const uint32_t address = shared_address(row);
  using Mode = MatrixMode<transposed>;
  if constexpr (matrices == 1)
    asm volatile("stmatrix.sync.aligned.m8n8.x1%2.shared.b16 [%0], {%1};" ::"r"(address), "r"(from[0]),
                 "C"(Mode::kText)
                 : "memory");
  else if constexpr (matrices == 2)
    asm volatile("stmatrix.sync.aligned.m8n8.x2%3.shared.b16 [%0], {%1, %2};" ::"r"(address), "r"(from[0]),
                 "r"(from[1]), "C"(Mode::kText)
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4%5.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(from[0]), "r"(from[1]), "r"(from[2]), "r"(from[3]), "C"(Mode::kText)
                 : "memory");
}

#else

template <int matrices, bool transposed = false>
__forceinline__ void load_matrices(uint32_t (&to)[matrices], const void* row) {
  static_assert(matrices == 1 || matrices == 2 || matrices == 4);
  emulate_ldmatrix(to, row, matrices, transposed);
}
template <int matrices, bool transposed = false>
__forceinline__ void store_matrices(void* row, const uint32_t (&from)[matrices]) {
  static_assert(matrices == 1 || matrices == 2 || matrices == 4);
  emulate_stmatrix(row, from, matrices, transposed);
}

#endif

}  // namespace fastgemm::FASTGEMM_TARGET
