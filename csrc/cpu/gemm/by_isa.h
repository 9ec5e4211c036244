// Calls the copy of a function of levels.h that was compiled for this processor's instruction set. Only for
// files that are compiled once: FASTGEMM_BY_ISA(epilogue_pass)(f, ctx).
#pragma once

#include <utility>

#include "cpu/gemm/levels.h"
#include "cpu/per_isa.h"

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

#define FASTGEMM_BY_ISA(name) by_isa<FASTGEMM_PER_ISA(name)>
