// wgmma on the host, as late as the rules allow: it reads its operands in shared memory, and writes its
// accumulators, when the warpgroup waits for the group that it belongs to. Until then the accumulators read
// as NaN (integers: 0x7fffffff). Registers of a are read at once: the compiler of the GPU looks after them.
#pragma once

#include <cstdint>

#include "cuda/device/fragment.cuh"

namespace fastgemm::simt {

struct WgmmaOperand {
  uint64_t descriptor = 0;
  bool transposed = false;  // m or n along the rows of its tiles
};

struct WgmmaCall {
  void* d;  // n / 2 registers
  int n;
  WgmmaOperand a, b;
  const uint32_t* a_registers;  // null: a is in shared memory
  bool accumulate;
  const void* site = nullptr;  // the instruction, once it is issued
};

// d = a * b, plus d if accumulate. Products are exact; of float32 they are added up along k in float32, then
// to d.
template <class T>
void emulate_wgmma(const WgmmaCall&);

// The registers that a fence names are checked: that nothing writes them between it and the next wgmma.
struct WgmmaRegisters {
  const void* first;
  int count;
};
void emulate_wgmma_fence(const WgmmaRegisters* named, int count);
void emulate_wgmma_commit();
void emulate_wgmma_wait(int pending);
void forget_wgmma();  // of the block before

// Fails for what a descriptor cannot say.
void check_descriptor(const void* shared, int swizzle, int leading, int stride);

}  // namespace fastgemm::simt
