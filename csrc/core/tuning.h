// What is known about speed: the static tables that ship with the library, and the measurements of the user's
// own autotuning. Reading them never measures anything.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/table.h"

namespace fastgemm {

// Whether every row starts at a multiple of 16 bytes, in both operands (`inputs`) and in the result (`out`).
struct Alignment {
  bool inputs = true, out = true;
  bool operator==(const Alignment&) const = default;
};
Alignment alignment_of(const GemmProblem&);

// The properties of a problem and its device that decide which kernel is fastest.
struct TuningKey {
  Op op = Op::gemm;
  Device device = Device::cpu;
  DType type = DType::f32, out_type = DType::f32;
  Precision precision = Precision::ieee;
  bool a_transposed = false, b_transposed = false;  // column-major operand (transpose, add: false)
  bool accumulates = false;                         // alpha != 1 or beta != 0
  int threads = 1;                                  // CPU; 0 on a GPU
  uint64_t gpu = 0;                                 // gpu_number() of its name; 0 on a CPU
  int64_t batch = 1, m = 0, n = 0, k = 0;           // transpose, add: m = rows, n = cols, k = 0
  Alignment alignment;                              // gemm on a GPU
  bool adds_row = false;                            // c is one row; libraries add it in their epilogue
  Symmetry symmetry;                                // of the result
  bool epilogue = false;                            // after some kernels it needs a pass
  Code code = Code::none;                           // of a packed b
  int64_t group_k = 0;
  GroupedBy groups = GroupedBy::none;
  bool gated = false, scales_parts = false;

  bool operator==(const TuningKey&) const = default;
};
struct TuningKeyHash {
  size_t operator()(const TuningKey&) const;
};

TuningKey tuning_key(const GemmProblem&, Device, int threads);
TuningKey tuning_key(const TransposeProblem&, Device, int threads);
TuningKey tuning_key(const AddProblem&, Device, int threads);

// The alignment of the matrices of a key if they are contiguous and start at an aligned address.
Alignment contiguous_alignment(const TuningKey&);

// A number that identifies a GPU's name and size ("NVIDIA H200, 132 multiprocessors"); 0 for "".
inline uint64_t gpu_number(std::string_view name) {
  if (name.empty()) return 0;
  uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  return h;
}

// The current GPU's name in the tables ("NVIDIA H200, 132 multiprocessors"), and its gpu_number(); "" and 0
// without a GPU. Both are defined in csrc/cuda, as its part of the kernel table is.
const char* current_gpu_name();
uint64_t current_gpu_number();

// The type of this processor, as CPU tables name it: "AuthenticAMD-25-17-avx512_bf16".
const std::string& cpu_model();

// The kernels that the static tables of this device name for a problem, best first (core/nearest.h). Empty if
// nothing was measured.
struct Candidates {
  std::array<const Kernel*, 17> kernels;
  size_t count = 0;
};
Candidates measured_candidates(const TuningKey&);

// The user's own measurements. Each holds for one problem. fastgemm.autotune adds measurements that hold for
// any alignment and addend; these are looked up first. The first call of a product adds one that holds only
// for its own key (`exactly`). Importing the package adds both, from the file that autotune keeps.
void remember(const TuningKey&, std::string_view kernel, bool exactly = false);
const Kernel* remembered(const TuningKey&);
size_t remembered_count();
void forget_all();

// How often these measurements have changed. A caller may keep a decision until this number changes.
uint64_t tuning_version();
void tuning_changed();

// Whether the framework's own product is as precise as asked for under its global flags. For float32 this
// means that the product has the given precision. For 16-bit types it means that all sums are in float32.
// Without a probe, the framework is assumed to compute IEEE products.
using FrameworkProbe = bool (*)(Device, DType, Precision);
void set_framework_probe(FrameworkProbe);
bool framework_computes(Device, DType, Precision);

}  // namespace fastgemm
