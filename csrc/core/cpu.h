// The model of a processor that predictions use: its work per cycle, its caches and its memory. All values
// are the same in every process on one machine. The clock is therefore not measured: it would differ from run
// to run, and so would the chosen kernel and the last bits of a result.
#pragma once

#include <cstdint>
#include <string>

#include "core/cpu_features.h"
#include "core/problem.h"

namespace fastgemm {

// What a core can do per cycle.
struct Units {
  Isa isa = Isa::baseline;
  bool vnni = false, dot_bf16 = false, amx_bf16 = false, amx_int8 = false;
  bool mmla_bf16 = false, mmla_int8 = false;
  bool fp16 = false;        // AVX512-FP16: other libraries use it, this one does not
  double vector_issue = 2;  // float32 vector multiply-adds that start per cycle
  bool mkl_avx2 = false;    // MKL uses only 32-byte vectors, two per cycle, whatever the CPU has

  int vector_bytes() const { return isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 16; }
  bool operator==(const Units&) const = default;
};

struct Cpu : Units {  // inherits the units that our kernels may use under FASTGEMM_CPU_ISA
  Units library;      // what other libraries use; the variable does not limit them
  std::string model;  // cpu_model(), its name in static tables
  int cores = 1;      // the cores that this process may use
  double clock = 3e9;
  int64_t l2 = 1 << 20;       // bytes of a core's cache
  int64_t l3 = 32 << 20;      // bytes of the cache that several cores share
  double core_bandwidth = 0;  // bytes a second from memory, by one core
  double bandwidth = 0;       // by all cores together

  bool operator==(const Cpu&) const = default;
};

// The processor of this machine, or the one that set_current_cpu() gave.
const Cpu& current_cpu();

// From now on predictions are made for this processor, and static tables are looked up under its name. Null:
// this machine's processor again. Changes tuning_version(). For tests and tools; do not call it while other
// threads multiply.
void set_current_cpu(const Cpu*);

}  // namespace fastgemm
