// A GPU as predictions see it: what its driver says, and what its architecture does in a cycle.
#pragma once

#include <cstdint>

#include "core/problem.h"

namespace fastgemm {

struct Gpu {
  int capability = 0;        // 90 for compute capability 9.0
  int multiprocessors = 1;   // of the context that launches go to
  int64_t shared_bytes = 0;  // the most that a block may have
  int64_t l2_bytes = 0;      // cache that all multiprocessors share
  double clock = 1e9;        // cycles a second
  double bandwidth = 1e12;   // bytes a second from device memory
  bool wgmma = false;        // it runs code for sm_90a, and the build has it
  uint64_t number = 0;       // stands for its name and size: gpu_number() in core/tuning.h

  bool operator==(const Gpu&) const = default;
};

// Which unit multiplies: `fma` are the ordinary ones, float16 and bfloat16 widened to float32 on their
// way, int8 four at a time.
enum class Unit : uint8_t { fma, tensor };

// Multiply-adds a cycle and multiprocessor: CUDA C++ Programming Guide, "Throughput of Native Arithmetic
// Instructions", and for tensor cores the rates of NVIDIA's data sheets at their boost clocks, sums in
// float32. Where GPUs of one capability differ the slower ones count: of 8.6, 8.9 and 12.0 GeForce does half
// of what A40, L40 and the RTX PRO cards do. float32 on tensor cores is tf32. 0: there is no such unit.
double multiply_adds(const Gpu&, Unit, DType);

// Whether float64 runs at half the rate of float32, and not at 1/32 or 1/64 of it.
constexpr bool has_fast_float64(int capability) {
  return capability == 80 || capability == 90 || capability == 100;
}

// The GPU that launches of this thread go to, or that it simulates. csrc/cuda defines it, as it defines its
// part of the kernel table.
const Gpu& current_gpu();

// A GPU of this capability and so many multiprocessors, as the simulator has it.
Gpu nominal_gpu(int capability, int multiprocessors);

}  // namespace fastgemm
