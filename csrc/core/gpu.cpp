#include "core/gpu.h"

#include <iterator>

namespace fastgemm {
namespace {

// The rates and sizes of one multiprocessor, from this compute capability on.
struct Architecture {
  int capability;
  int shared_kib;                                                // the most for a block
  double float64, float32, int32;                                // multiply-adds per cycle
  double tensor_float64, tensor_tf32, tensor_half, tensor_int8;  // the same
  // The largest GPU of this architecture, for nominal_gpu().
  int l2_mib;
  double gigahertz, gigabytes;
};

// In this order: A100; RTX 3090; Jetson Orin; RTX 4090; H100; B200; B300; Jetson Thor; RTX 5090; DGX Spark.
// The tensor rates of 10.x and 11.0 are A100's, an assumption for mma.sync: their full rates need
// instructions that no kernel here uses.
constexpr Architecture kArchitectures[] = {
    {80, 163, 32, 64, 64, 64, 512, 1024, 2048, 40, 1.410, 2039},
    {86, 99, 2, 128, 64, 0, 128, 256, 1024, 6, 1.695, 936},
    {87, 163, 2, 128, 64, 0, 256, 512, 1024, 4, 1.300, 204},
    {89, 99, 2, 128, 64, 0, 128, 256, 1024, 72, 2.520, 1008},
    {90, 227, 64, 128, 64, 128, 1024, 2048, 4096, 50, 1.980, 3350},
    {100, 227, 64, 128, 64, 128, 512, 1024, 2048, 126, 1.965, 8000},
    {103, 227, 2, 128, 64, 2, 512, 1024, 256, 126, 1.965, 8000},
    {110, 227, 2, 128, 64, 0, 512, 1024, 2048, 32, 1.575, 273},
    {120, 99, 2, 128, 128, 0, 128, 256, 1024, 96, 2.407, 1792},
    {121, 99, 2, 128, 128, 0, 128, 256, 1024, 24, 2.418, 273},
};

// The entry with the highest known capability that is not above this one.
const Architecture& architecture(int capability) {
  const Architecture* found = kArchitectures;
  for (const Architecture& a : kArchitectures)
    if (a.capability <= capability) found = &a;
  return *found;
}

}  // namespace

double multiply_adds(const Gpu& gpu, Unit unit, DType type) {
  const Architecture& a = architecture(gpu.capability);
  const bool tensor = unit == Unit::tensor;
  // On Hopper mma.sync reaches less than two thirds of wgmma's rate, whatever feeds it
  // (docs/tensor_cores.md). float64 has no wgmma.
  if (tensor && a.capability == 90 && !gpu.wgmma && type != DType::f64) {
    constexpr double kByMmaSync = 0.63;
    return kByMmaSync * multiply_adds({.capability = 90, .wgmma = true}, unit, type);
  }
  switch (type) {
    case DType::f64:
      return tensor ? a.tensor_float64 : a.float64;
    case DType::f32:
      return tensor ? a.tensor_tf32 : a.float32;
    case DType::f16:
    case DType::bf16:
      return tensor ? a.tensor_half : a.float32;
    case DType::i8:
      return tensor ? a.tensor_int8 : 4 * a.int32;  // __dp4a
    case DType::u8:
    case DType::u8i8:
    case DType::i8u8:
      return tensor ? a.tensor_int8 : a.int32;
    case DType::i64:  // three 32-bit multiply-adds; one of them writes two registers
      return tensor ? 0 : a.int32 / 4;
    default:
      return tensor ? 0 : a.int32;
  }
}

Gpu nominal_gpu(int capability, int multiprocessors) {
  const Architecture& a = architecture(capability);
  return {.capability = capability,
          .multiprocessors = multiprocessors,
          .shared_bytes = int64_t{a.shared_kib} << 10,
          .l2_bytes = int64_t{a.l2_mib} << 20,
          .clock = a.gigahertz * 1e9,
          .bandwidth = a.gigabytes * 1e9,
          .wgmma = capability == 90};
}

}  // namespace fastgemm
