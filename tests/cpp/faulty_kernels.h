// Kernels with one fault each. Each has a twin without the fault. They are compiled in the same way as
// csrc/simt compiles the kernels of csrc/cuda, and simt_faults_test.cpp runs them.
#pragma once

#include <span>

#include "cuda/device/tma.cuh"

namespace fastgemm::simt::faults {

// The arguments of every kernel. Their memory ends after the last element.
struct Arguments {
  const int* in;  // kIn elements: input(i)
  int* out;       // Shape::results elements, uninitialized
  int* scratch;   // kScratch elements, uninitialized
  // Boxes of one row of kRow elements.
  TensorMap map;       // of `in`
  TensorMap long_map;  // of `in`, with one row too many
  TensorMap out_map;
};
constexpr int kIn = 256, kScratch = 64, kRow = 32;
constexpr int input(int i) { return 7 * i - 300; }

struct Shape {
  int threads = 32;
  size_t shared_bytes = 0;
  dim3 grid = {};
  int results = threads;
  int cluster = 1;
};

struct Case {
  const char* name;
  void (*faulty)(Arguments);
  void (*clean)(Arguments);
  // The check that must find the fault and name lines ending in `// fault: <first word of name>`. "race or in
  // flight": either check, depending on the order of the threads.
  const char* check;
  int (*want)(int i);  // out[i]
  Shape shape = {};
};
// Not a check of the simulator: `out` must differ from the wanted values.
inline constexpr char kWrongResult[] = "wrong result";
// Looks like a fault, but gives right results at this size.
inline constexpr char kNothing[] = "nothing";

// Name, faulty kernel and its twin.
#define FASTGEMM_CASE(name) #name, name<true>, name<false>

std::span<const Case> memory_cases();    // bounds, alignment, initialization
std::span<const Case> order_cases();     // races and barriers
std::span<const Case> async_cases();     // cp.async
std::span<const Case> mbarrier_cases();  // barriers in shared memory
std::span<const Case> tma_cases();       // boxes
std::span<const Case> cluster_cases();   // blocks that reach each other's shared memory
std::span<const Case> matrix_cases();    // ldmatrix, stmatrix, mma and wgmma
std::span<const Case> product_cases();   // textbook matrix products with mistakes

}  // namespace fastgemm::simt::faults
