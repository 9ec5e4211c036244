#include "simt/wide.h"

#include <algorithm>

// The sanitizers' runtimes do not start in a program whose functions the loader chooses.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define FASTGEMM_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define FASTGEMM_WIDE
#endif

namespace fastgemm::simt::wide {
namespace {

// Four rows at a time by eight columns, whose sums stay in registers.
template <class Number>
inline __attribute__((always_inline)) void add_products(Number* sums, const Number* a, const Number* b, int m,
                                                        int n, int k) {
  typedef Number Eight __attribute__((vector_size(32), aligned(4), may_alias));
  for (int i = 0; i < m; i += 4)
    for (int j = 0; j < n; j += 8) {
      Eight sum[4];
      for (int r = 0; r < 4; ++r) sum[r] = *reinterpret_cast<const Eight*>(sums + (i + r) * n + j);
      for (int l = 0; l < k; ++l)
        for (int r = 0; r < 4; ++r)
          sum[r] += a[(i + r) * k + l] * *reinterpret_cast<const Eight*>(b + l * n + j);
      for (int r = 0; r < 4; ++r) *reinterpret_cast<Eight*>(sums + (i + r) * n + j) = sum[r];
    }
}

}  // namespace

FASTGEMM_WIDE void multiply(float* sums, const float* a, const float* b, int m, int n, int k) {
  add_products(sums, a, b, m, n, k);
}
FASTGEMM_WIDE void multiply(uint32_t* sums, const uint32_t* a, const uint32_t* b, int m, int n, int k) {
  add_products(sums, a, b, m, n, k);
}

FASTGEMM_WIDE void raise(uint32_t* to, const uint32_t* from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace fastgemm::simt::wide
