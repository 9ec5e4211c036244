// The copies of a function that are compiled for each instruction set, in the order of Isa. A build for one
// instruction set (FASTGEMM_ONLY_ISA) has one copy; cpu_features() then refuses every other.
#pragma once

#include "core/cpu_features.h"

#if defined(FASTGEMM_ONLY_ISA)
#define FASTGEMM_PER_ISA(name) FASTGEMM_ONLY_ISA::name, FASTGEMM_ONLY_ISA::name, FASTGEMM_ONLY_ISA::name
#elif defined(__x86_64__)
#define FASTGEMM_PER_ISA(name) baseline::name, avx2::name, avx512::name
#else
#define FASTGEMM_PER_ISA(name) baseline::name, baseline::name, baseline::name
#endif
