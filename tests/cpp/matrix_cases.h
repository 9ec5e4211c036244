// Every instruction of cuda/device that moves or multiplies matrices, in a small kernel each. The kernels are
// compiled for the GPU and for the simulator; both lists name the same cases in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fastgemm::test {

enum class Number { f16, bf16, tf32, f64, s8, u8, bits16 };

// Two fragment registers of a lane that change places before (a, b) or after (d) the instruction.
struct Swap {
  enum Where { nowhere, a, b, d } where = nowhere;
  int i = 0, j = 0;
};

// c (m, n) += a (m, k) * b (k, n), c row-major, float32 for up to 32 bits, uint32_t for integers, double for
// f64. Of bits16 (k = 0) there is no product: c (m, n) = a.
struct MatrixCase {
  std::string name;
  Number number;
  int m, n, k;
  bool a_by_columns = false,
       b_by_columns = true;  // which index runs fastest in memory: k in rows of a, columns of b
  bool accumulates = true;
  bool rounds = false;  // tf32, when it is loaded; else the low bits are cut off
  int swaps[4] = {};    // registers that may change places, by Swap::Where
  void (*run)(const void* a, const void* b, void* c, Swap);
};

// The mistakes of a kernel that multiplies by TMA and wgmma.
enum class Mistake {
  none,
  no_barrier_wait,  // for the boxes
  no_wgmma_wait,    // before the accumulators are read
  early_refill,     // the next boxes are asked for while wgmma reads the last ones
  no_wgmma_fence,   // between zeroing the accumulators and wgmma
  wrong_swizzle,    // of the boxes
};

}  // namespace fastgemm::test

// pipelined_product: c (m, n) = a (m, k) * b (n, k)^T of bfloat16; m, n and k are multiples of 64.
namespace fastgemm::cuda {
std::vector<test::MatrixCase> matrix_cases();
void pipelined_product(const void* a, const void* b, float* c, int m, int n, int k);
}  // namespace fastgemm::cuda
namespace fastgemm::simt {
std::vector<test::MatrixCase> matrix_cases();
void pipelined_product(const void* a, const void* b, float* c, int m, int n, int k,
                       test::Mistake = test::Mistake::none);
}  // namespace fastgemm::simt
