// What is known about speed: the static tables that ship with the library and the measurements that a
// user's own autotuning added. Reading them never measures anything.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/table.h"

namespace fastgemm {

// Everything about a problem that its fastest kernel depends on, besides the device.
struct TuningKey {
  Op op = Op::gemm;
  Device device = Device::cpu;
  DType type = DType::f32, out_type = DType::f32;
  Precision precision = Precision::ieee;
  bool a_transposed = false, b_transposed = false;  // column-major operand (transpose, add: false)
  bool accumulates = false;                         // alpha != 1 or beta != 0
  int threads = 1;                                  // CPU; 0 on a GPU
  uint64_t gpu = 0;                                 // which GPU: gpu_number() of its name; 0 on a CPU
  int64_t batch = 1, m = 0, n = 0, k = 0;           // transpose, add: m = rows, n = cols, k = 0

  bool operator==(const TuningKey&) const = default;
};

TuningKey tuning_key(const GemmProblem&, Device, int threads);
TuningKey tuning_key(const TransposeProblem&, Device, int threads);
TuningKey tuning_key(const AddProblem&, Device, int threads);

// A number that stands for a GPU's name and size ("NVIDIA H200, 132 multiprocessors"); 0 for "".
uint64_t gpu_number(std::string_view name);

// One measured point of a static table: the name of the kernel that was fastest there.
struct Measured {
  DType type;
  uint8_t threads;  // 0 on a GPU
  int64_t batch, m, n, k;
  bool a_transposed, b_transposed;
  std::string_view kernel;
  bool clearly = true;  // faster than the framework by so much that sizes around this one follow
  Precision precision = Precision::ieee;
};
struct StaticTable {
  std::string_view device;  // what cpu_model() or the GPU calls itself
  Op op;
  std::span<const Measured> points;
};
std::span<const StaticTable> static_tables();  // generated: core/static_tables.cpp

// "AuthenticAMD-25-17-avx512_bf16": the processor type that a CPU table was measured on.
const std::string& cpu_model();

// The kernel that a static table of this device names for the nearest measured problem (in the logarithm
// of its sizes), or nullptr where no table was measured. On a GPU, where the distance between two libraries
// changes abruptly from size to size, it is the framework unless that clearly lost at each of the nearest few
// points, or at a point of this very size.
const Kernel* nearest_measured(const TuningKey&);

// The user's own measurements: exact problems, filled by fastgemm.autotune or from its file at import.
void remember(const TuningKey&, std::string_view kernel);
const Kernel* remembered(const TuningKey&);
size_t remembered_count();
void forget_all();

// Counts every change of the above, so that a caller may keep a decision until the count moves.
uint64_t tuning_version();

// Whether the framework's own product of these operands is what was asked for under its global flags: float32
// in this precision, 16-bit types with sums in float32 to the end. Without a probe it is taken to be IEEE.
using FrameworkProbe = std::function<bool(Device, DType, Precision)>;
void set_framework_probe(FrameworkProbe);
bool framework_computes(Device, DType, Precision);

}  // namespace fastgemm
