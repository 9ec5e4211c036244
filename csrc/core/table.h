// The kernel table: the single source of truth. Dispatch, tests, benchmarks, the command line, the tables in
// docs/ and the error messages all read it. A row stays in the table even if its code was not built or its
// device is missing; `unavailable` then says why.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "core/cpu.h"
#include "core/gpu.h"
#include "core/part_scales.h"
#include "core/problem.h"

namespace fastgemm {

enum class Op : uint8_t { gemm, transpose, add };
// simt: CUDA kernels that the simulator runs on the CPU (core/simulator.h). kernels() has no row of this
// device.
enum class Device : uint8_t { cpu, cuda, simt };

enum class Role : uint8_t {
  rung,       // a level may pick it
  shortcut,   // saves work for special products; level=None may pick it, a level does not
  companion,  // shows what the idea of a rung gains by leaving it out; runs only by name
  pitfall,    // correct but slow, kept as a lesson; runs only by name
};

struct Kernel {
  Op op;
  Device device;
  int level;
  std::string_view name;  // unique for op and device
  DTypeSet dtypes;
  std::string_view needs;    // "any CPU", "AVX-512 VNNI", "sm_80": what `info` shows
  std::string_view summary;  // one sentence: the idea
  Role role = Role::rung;
  // The precision of its float32 products. A row below IEEE runs only if the caller asks for exactly this
  // precision.
  Precision precision = Precision::ieee;

  // Null where the code was not built.
  void (*gemm)(const GemmProblem&, Context&) = nullptr;
  void (*transpose)(const TransposeProblem&, Context&) = nullptr;
  void (*add)(const AddProblem&, Context&) = nullptr;

  // Returns why the kernel cannot run in this process (not built, hardware missing); null if it can.
  const char* (*unavailable)() = nullptr;
  // The predicted time in seconds; infinity if unknown. A level picks its row with the smallest time. Null if
  // there is no prediction; rows with a prediction come first.
  double (*predict)(const GemmProblem&, const Gpu&) = nullptr;
  // The same on a CPU, with this number of threads. Only level=None uses it.
  double (*predict_on_cpu)(const GemmProblem&, const Cpu&, int threads) = nullptr;
  // Returns why the kernel cannot compute this problem; null if it can. No function: it takes every problem
  // of its dtypes.
  const char* (*rejects)(const GemmProblem&) = nullptr;
  // It also takes complex matrices directly: problems of type bits64 (complex64) and bits128 (complex128),
  // and bits32 (complex32) if it adds. Their strides count complex numbers.
  bool complex = false;
  // Whether the kernel applies the epilogue of this problem itself; k is not 0. Null: it never does.
  bool (*fuses)(const GemmProblem&) = nullptr;
  // Whether it then also multiplies the sums by GemmProblem::scales.
  bool scales = false;
  // Whether the kernel stores both triangles although `triangle` asks for one. Null: it never does.
  bool (*mirrors)(const GemmProblem&) = nullptr;
  // If GemmProblem::triangle asks for one triangle, the kernel computes only that triangle of a symmetric
  // result with up to this many rows. `predict` then counts one triangle. Null: the kernel always computes
  // both.
  int64_t (*most_of_triangle)(const GemmProblem&, const Gpu&) = nullptr;
  // Whether the kernel obeys GemmProblem::invariant. Null: it never does.
  bool (*invariant)(const GemmProblem&) = nullptr;
  // The codes of packed weights that it takes as b. Code::none stands for a matrix.
  CodeSet codes = kNoCode;
  // What groups of uneven size may divide in its products. GroupedBy::none stands for a plain batch.
  GroupedBySet groups = kNoGroups;
  // Whether the kernel computes products of a gate and a value (GemmProblem::gated).
  bool gates = false;
  bool gathers = false;  // takes Groups::rows
  // Whether the kernel multiplies sums of parts of k by scales (part_scales.h).
  bool scales_parts = false;
  bool takes(const PackedWeight& b) const { return codes & fastgemm::codes(b.code); }
  bool takes(const Groups& g) const { return groups & groups_by(g.by); }
  const char* why_unavailable() const { return unavailable ? unavailable() : nullptr; }
};

// All rows, grouped by op and device and ordered by level; within a level the preferred row comes first.
std::span<const Kernel> kernels();

// Rows that compute a product by other rows of their device, which they choose (csrc/strategies). No other
// row chooses a row.
std::span<const Kernel> strategies_for(Device);

// Contributed by each backend (cpu/gemm/table.cpp and so on); kernels() joins them.
std::span<const Kernel> cpu_gemm_kernels();
std::span<const Kernel> cpu_transpose_kernels();
std::span<const Kernel> cpu_add_kernels();
std::span<const Kernel> cuda_gemm_kernels();
std::span<const Kernel> cuda_transpose_kernels();
std::span<const Kernel> cuda_add_kernels();
std::span<const Kernel> library_kernels();

}  // namespace fastgemm
