// The kernel table: the single source of truth. Dispatch, tests, benchmarks, the command line, the
// tables in docs/ and the error messages all read it. A row stays in the table when its code was not
// built or its device is missing; then `unavailable` says why.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/context.h"
#include "core/cpu.h"
#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm {

enum class Op : uint8_t { gemm, transpose, add };
// simt: CUDA kernels that the simulator runs on the CPU (core/simulator.h); no row of kernels() has it.
enum class Device : uint8_t { cpu, cuda, simt };

enum class Role : uint8_t {
  rung,       // a level may pick it
  shortcut,   // computes less where a product allows it: level=None may pick it, a level does not
  companion,  // stands beside a rung to show what the rung's idea buys; only by name
  pitfall,    // slow but right: a lesson; only by name, promises nothing
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
  // Of float32 products; a row that falls short of IEEE takes only those for which that precision is asked.
  Precision precision = Precision::ieee;

  // Null where the code was not built.
  void (*gemm)(const GemmProblem&, Context&) = nullptr;
  void (*transpose)(const TransposeProblem&, Context&) = nullptr;
  void (*add)(const AddProblem&, Context&) = nullptr;

  // Why the kernel cannot run in this process (not built, no such unit); null when it can.
  const char* (*unavailable)() = nullptr;
  // How long it would take, in seconds; infinity where that is not known. Of the rows of a level the one that
  // takes least is picked. Null: it is not predicted, and picked after those that are.
  double (*predict)(const GemmProblem&, const Gpu&) = nullptr;
  // The same on a CPU, with so many threads; there level=None alone goes by it.
  double (*predict_on_cpu)(const GemmProblem&, const Cpu&, int threads) = nullptr;
  // Why it cannot take this problem; null when it can, or when it takes every problem of its dtypes.
  const char* (*rejects)(const GemmProblem&) = nullptr;
  // It takes complex matrices as they are, too: problems of the types bits64 (complex64) and bits128
  // (complex128), whose strides count complex numbers.
  bool complex = false;
  // Whether it applies the epilogue of this problem itself, whose k is not 0; null: of none.
  bool (*fuses)(const GemmProblem&) = nullptr;
  // Whether it stores both triangles of a result of which `triangle` asks for one; null: of none.
  bool (*mirrors)(const GemmProblem&) = nullptr;
  const char* why_unavailable() const { return unavailable ? unavailable() : nullptr; }
};

// All rows, grouped by op and device and ordered by level; within a level the preferred row comes first.
std::span<const Kernel> kernels();

// Contributed by each backend (cpu/gemm/table.cpp and so on); kernels() joins them.
std::span<const Kernel> cpu_gemm_kernels();
std::span<const Kernel> cpu_transpose_kernels();
std::span<const Kernel> cpu_add_kernels();
std::span<const Kernel> cuda_gemm_kernels();
std::span<const Kernel> cuda_transpose_kernels();
std::span<const Kernel> cuda_add_kernels();
std::span<const Kernel> library_kernels();

}  // namespace fastgemm
