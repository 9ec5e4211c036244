// The routes of a product that do not depend on a level's micro-kernel: few rows and tiny batches.
// small_routes.cpp compiles them once for each instruction set, and the levels that include this header call
// them there. They take most of the time in which such a level is compiled.
#pragma once

#include "cpu/gemm/few_rows.h"
#include "cpu/gemm/tiny.h"

// Calls MACRO(element, result) for all types of real products.
#define FASTGEMM_REAL_PRODUCTS(MACRO) \
  MACRO(float, float)                 \
  MACRO(double, double)               \
  MACRO(Half, Half)                   \
  MACRO(Half, float)                  \
  MACRO(BFloat16, BFloat16)           \
  MACRO(BFloat16, float)              \
  MACRO(int8_t, uint32_t)             \
  MACRO(uint8_t, uint32_t)            \
  MACRO(int16_t, uint32_t)            \
  MACRO(uint32_t, uint32_t)           \
  MACRO(uint64_t, uint64_t)

#define FASTGEMM_DECLARE_ROUTES(T, Out)                                         \
  extern template bool run_few_rows<T, Out>(const GemmProblem&, Context&, int); \
  extern template bool run_tiny<T, Out>(const GemmProblem&, Context&);

namespace fastgemm::FASTGEMM_ISA {
FASTGEMM_REAL_PRODUCTS(FASTGEMM_DECLARE_ROUTES)
}
