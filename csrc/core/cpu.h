// A processor as predictions see it: what it does in a cycle, its caches and its memory. Everything here is
// the same in every process on one machine: a clock that was measured would differ from run to run, and with
// it the kernel that is chosen and the last bits of a result.
#pragma once

#include <cstdint>
#include <string>

#include "core/cpu_features.h"
#include "core/problem.h"

namespace fastgemm {

// What a core can do in a cycle.
struct Units {
  Isa isa = Isa::baseline;
  bool vnni = false, dot_bf16 = false, amx_bf16 = false, amx_int8 = false;
  bool mmla_bf16 = false, mmla_int8 = false;
  bool fp16 = false;        // AVX512-FP16, which libraries use and this one does not
  double vector_issue = 2;  // vector multiply-adds in float32 that start in a cycle
  bool mkl_avx2 = false;    // MKL multiplies by vectors of 32 bytes, two a cycle, whatever else there is

  int vector_bytes() const { return isa == Isa::avx512 ? 64 : isa == Isa::avx2 ? 32 : 16; }
  bool operator==(const Units&) const = default;
};

struct Cpu : Units {  // its own units are those that kernels may use, under FASTGEMM_CPU_ISA
  Units library;      // what libraries use, whatever that variable says
  std::string model;  // as static tables name it: cpu_model()
  int cores = 1;      // that this process may use
  double clock = 3e9;
  int64_t l2 = 1 << 20;       // bytes of a core's cache
  int64_t l3 = 32 << 20;      // bytes of the cache that cores share
  double core_bandwidth = 0;  // bytes a second from memory, by one core
  double bandwidth = 0;       // and by all

  bool operator==(const Cpu&) const = default;
};

// This machine's, or the one that was put in its place.
const Cpu& current_cpu();

// Predictions are made for this processor from now on, and static tables looked up under its name. For tests
// and tools: not while other threads multiply. Null: this machine's again. Changes tuning_version().
void set_current_cpu(const Cpu*);

}  // namespace fastgemm
