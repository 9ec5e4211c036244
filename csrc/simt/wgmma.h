// wgmma on the host, as late as the rules allow. It reads its operands in shared memory and writes its
// accumulators when the warpgroup waits for its group. Until then the accumulators read as NaN (integers:
// 0x7fffffff). Operand a in registers is read at once, because the GPU's compiler protects those registers.
#pragma once

#include <cstdint>

#include "cuda/device/fragment.cuh"

namespace fastgemm::simt {

struct WgmmaOperand {
  uint64_t descriptor = 0;
  bool transposed = false;  // m or n, not k, is contiguous in its tiles
};

struct WgmmaCall {
  void* d;  // n / 2 registers
  int n;
  WgmmaOperand a, b;
  const uint32_t* a_registers;  // null: a is in shared memory
  bool accumulate;
  const void* site = nullptr;  // the instruction; set when it is issued
};

// d = a * b, plus d if accumulate. Products are exact. With float32 sums, they are added along k in float32,
// and the sum is added to d.
template <class T>
void emulate_wgmma(const WgmmaCall&);

// The registers that a fence names. It is checked that nothing writes them between the fence and the next
// wgmma.
struct WgmmaRegisters {
  const void* first;
  int count;
};
void emulate_wgmma_fence(const WgmmaRegisters* named, int count);
void emulate_wgmma_commit();
void emulate_wgmma_wait(int pending);
void forget_wgmma();  // of the block before

// Fails for values that a descriptor cannot hold.
void check_descriptor(const void* shared, int swizzle, int leading, int stride);

}  // namespace fastgemm::simt
