// Loops over many numbers in which the simulator spends much of its time. They are compiled a second time for
// AVX2, which the loader chooses where there is one. There are no fused multiply-adds among them: results are
// the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fastgemm::simt::wide {

// sums (m, n) += a (m, k) * b (k, n), with the products of an element added in the order of k. Integers wrap.
// m is a multiple of 4 and n of 8.
void multiply(float* sums, const float* a, const float* b, int m, int n, int k);
void multiply(uint32_t* sums, const uint32_t* a, const uint32_t* b, int m, int n, int k);

// to[i] = max(to[i], from[i])
void raise(uint32_t* to, const uint32_t* from, size_t count);

}  // namespace fastgemm::simt::wide
