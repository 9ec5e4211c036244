// The instruction sets and caches of this processor, read once (by CPUID; on aarch64 from Linux), and the
// instruction set to use.
#pragma once

#include <cstddef>
#include <string>

namespace fastgemm {

// The instruction sets that CPU kernels are compiled for. Each includes the ones before it.
enum class Isa { baseline, avx2, avx512 };

struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA, F16C
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // vpdpbusd
  bool avx512_bf16 = false;  // vdpbf16ps
  bool avx512_fp16 = false;  // other libraries use it, this one does not
  bool amx_bf16 = false;     // matrix tiles, with the operating system's permission
  bool amx_int8 = false;
  bool neon_bf16 = false;  // aarch64's bfmmla (FEAT_BF16)
  bool neon_i8mm = false;  // and smmla (FEAT_I8MM)
  std::string vendor;      // "AuthenticAMD"
  std::string brand;       // as CPUID returns it
  int family = 0, model = 0;
  int max_megahertz = 0;  // 0: the processor does not say

  Isa isa() const { return avx512 ? Isa::avx512 : avx2 ? Isa::avx2 : Isa::baseline; }
  std::string list() const;  // "avx2 avx512 avx512_vnni"; on aarch64 "bf16 i8mm"
};

// The features found, limited by the environment variable FASTGEMM_CPU_ISA: baseline, avx2, avx512 (without
// the units for bfloat16 and int8) or native. It is read once. Tests use it to run every variant.
const CpuFeatures& cpu_features();

// The features found, without that limit.
const CpuFeatures& detected_cpu_features();

struct CpuCaches {
  size_t l1d = 32 << 10, l2 = 512 << 10, l3 = 8 << 20;  // bytes; l1d and l2 per core
};
const CpuCaches& cpu_caches();

}  // namespace fastgemm
