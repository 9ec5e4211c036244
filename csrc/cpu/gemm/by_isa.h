// Calls the copy of a function of levels.h that was compiled for this processor's instruction set. Only for
// files that are compiled once: FASTGEMM_BY_ISA(epilogue_pass)(f, ctx).
#pragma once

#include <utility>

#include "core/cpu_features.h"
#include "cpu/gemm/levels.h"

#if defined(__x86_64__)
namespace fastgemm {

template <auto baseline, auto avx2, auto avx512, class... Arguments>
void by_isa(Arguments&&... arguments) {
  switch (cpu_features().isa()) {
    case Isa::avx512:
      return avx512(std::forward<Arguments>(arguments)...);
    case Isa::avx2:
      return avx2(std::forward<Arguments>(arguments)...);
    case Isa::baseline:
      return baseline(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace fastgemm
#define FASTGEMM_BY_ISA(name) by_isa<baseline::name, avx2::name, avx512::name>
#else
#define FASTGEMM_BY_ISA(name) baseline::name
#endif
