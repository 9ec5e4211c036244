// What a kernel has to do for a problem, counted in what GPUs do at known rates: cycles of a multiprocessor,
// multiply-adds of its units, bytes of L2 and of memory. Each count is in seconds at the nominal rate of the
// GPU at hand, so that a kernel's constants (costs.def), how many times as long it takes, carry over from one
// GPU to another:
//
//   seconds = launch count x launch cost + wave count x wave cost + ... (predict.cpp)
//
// Method: a linear model with nonnegative coefficients, as rooflines and the "launch, waves, slower of
// compute and memory" of hand-made models are, but with all terms at once, so that none has to dominate.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm::predict {

// Name, and what a constant of it means. Of those that measurements cannot tell apart the first stands for
// all.
#define FASTGEMM_COUNTS(X)                                                                                  \
  X(launch)         /* cycles: before and after everything */                                               \
  X(more_launches)  /* cycles of each further kernel */                                                     \
  X(code)           /* cycles of each instruction of a long loop body, which no cache holds at first */     \
  X(waves)          /* cycles of each block of those that follow each other on a multiprocessor */          \
  X(busiest)        /* times the multiply-adds of whole tiles on the busiest multiprocessor, at its peak */ \
  X(all)            /* times those of all, at the peak of all */                                            \
  X(steps)          /* cycles of each step of k of those that follow each other */                          \
  X(tiles_busiest)  /* times the bytes of tiles that the busiest multiprocessor loads, at 64 a cycle */     \
  X(tiles)          /* times those of all, at 32 a cycle and multiprocessor: L2 */                          \
  X(read)           /* times the bytes of both operands, at the bandwidth of memory */                      \
  X(written)        /* times those of the result, and of a c that is read */                                \
  X(partial)        /* times those of partial sums, written and read */                                     \
  X(copied)         /* times those that a pass over the operands reads and writes first */                  \
  X(transposed)     /* times those that are transposed first */                                             \
  X(odd_transposed) /* more of the latter, where rows begin anywhere */                                     \
  X(edges)          /* cycles of each transposition with tiles at an edge */                                \
  X(slower)         /* times the longer of `busiest` and `read` + `written` */                              \
  X(unaligned)      /* times the bytes of tiles from rows that begin anywhere, busiest, 64 a cycle */       \
  X(across)         /* times those of tiles from rows that do not run along k */                            \
  X(odd_result)     /* times those of a result whose rows begin anywhere */

#define FASTGEMM_FIELD(name) double name = 0;
struct Counts {
  FASTGEMM_COUNTS(FASTGEMM_FIELD)
};
#undef FASTGEMM_FIELD
inline constexpr int kCounts = sizeof(Counts) / sizeof(double);

#define FASTGEMM_NAME(name) #name,
inline constexpr std::string_view kCountNames[] = {FASTGEMM_COUNTS(FASTGEMM_NAME)};
#undef FASTGEMM_NAME

// Of a row of rows.def: named count_<row> where rows do not share one.
using Counter = Counts (*)(const GemmProblem&, const Gpu&);
Counts count_tiled(const GemmProblem&, const Gpu&);
Counts count_thread_tile(const GemmProblem&, const Gpu&);
Counts count_vectorized(const GemmProblem&, const Gpu&);
Counts count_small(const GemmProblem&, const Gpu&);
Counts count_batched(const GemmProblem&, const Gpu&);
Counts count_cp_async(const GemmProblem&, const Gpu&);
Counts count_warp_specialized(const GemmProblem&, const Gpu&);
Counts count_narrow(const GemmProblem&, const Gpu&);
Counts count_direct(const GemmProblem&, const Gpu&);
Counts count_small_tile(const GemmProblem&, const Gpu&);
Counts count_skinny(const GemmProblem&, const Gpu&);
Counts count_split_k(const GemmProblem&, const Gpu&);
Counts count_wgmma_specialized(const GemmProblem&, const Gpu&);
Counts count_mma_sync(const GemmProblem&, const Gpu&);
Counts count_dmma(const GemmProblem&, const Gpu&);
Counts count_crt(const GemmProblem&, const Gpu&);
Counts count_bf16x6(const GemmProblem&, const Gpu&);
Counts count_three_planes(const GemmProblem&, const Gpu&);
Counts count_int8x10(const GemmProblem&, const Gpu&);
Counts count_int16x4(const GemmProblem&, const Gpu&);
Counts count_bf16x6_fused(const GemmProblem&, const Gpu&);
Counts count_library(const GemmProblem&, const Gpu&);  // of torch, which is no row of ours

}  // namespace fastgemm::predict
