// The model of a GPU that predictions use: what its driver says, and what its architecture does per cycle.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace fastgemm {

struct Gpu {
  int capability = 0;        // 90 for compute capability 9.0
  int multiprocessors = 1;   // of the context in use, which may have only a part of them
  int64_t shared_bytes = 0;  // shared memory: the most for a block
  int64_t l2_bytes = 0;      // cache that all multiprocessors share
  double clock = 1e9;        // cycles a second
  double bandwidth = 1e12;   // bytes a second from device memory
  bool wgmma = false;        // it runs code for sm_90a, and this build has that code
  uint64_t number = 0;       // identifies its name and size: gpu_number() in core/tuning.h

  bool operator==(const Gpu&) const = default;
};

// The unit that multiplies. `fma` is the ordinary one: float16 and bfloat16 are widened to float32 first, and
// int8 is multiplied four at a time.
enum class Unit : uint8_t { fma, tensor };

// Multiply-adds per cycle and multiprocessor; 0 if there is no such unit. float32 on tensor cores means tf32.
// Sources: CUDA C++ Programming Guide, "Throughput of Native Arithmetic Instructions"; for tensor cores
// NVIDIA's data sheets, at boost clock, with float32 sums. Where GPUs of one capability differ, the slower
// one counts: in 8.6, 8.9 and 12.0 GeForce has half the rate of A40, L40 and the RTX PRO cards.
double multiply_adds(const Gpu&, Unit, DType);

// The GPU on which this thread launches, or which it simulates. Defined in csrc/cuda, as its part of the
// kernel table is.
const Gpu& current_gpu();

// The simulator's GPU with this capability and number of multiprocessors.
Gpu nominal_gpu(int capability, int multiprocessors);

}  // namespace fastgemm
