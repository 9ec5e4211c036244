// Counts the work of a kernel for a problem in quantities that GPUs process at known rates: cycles of a
// multiprocessor, multiply-adds of its units, bytes of L2 and of memory. Each count is the time in seconds
// that the work takes at the nominal rate of the GPU at hand. A kernel's constants (costs.def) say how many
// times as long it takes. So constants of one GPU can be used for another:
//
//   seconds = launch count x launch cost + wave count x wave cost + ... (predict.cpp)
//
// Method: a linear model with nonnegative coefficients. A roofline takes the largest of some terms; here all
// terms are added, so that none has to dominate. Only the last count is a limit.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/gpu.h"
#include "core/problem.h"

namespace fastgemm::predict {

// The name of each count, and what it counts. The constant of a count of cycles is how many cycles each
// takes. The constant of any other count is a factor on the time that its work takes at the named rate. Where
// measurements cannot separate several counts, the fit gives the first of them the whole cost, and it drops
// those that explain nothing.
#define FASTGEMM_COUNTS(X)                                                                            \
  X(launch)        /* cycles: the first kernel */                                                     \
  X(more_launches) /* cycles: each further kernel */                                                  \
  X(code)          /* cycles: each instruction of a long loop body, which no cache holds at first */  \
  X(waves)         /* cycles: each of the blocks that follow one another on a multiprocessor */       \
  X(steps)         /* cycles: each of the steps of k that follow one another */                       \
  X(busiest)       /* multiply-adds of whole tiles on the busiest multiprocessor, at its peak */      \
  X(tiles)         /* bytes of tiles that the busiest multiprocessor loads, at 64 a cycle */          \
  X(read)          /* bytes of both operands, at the bandwidth of memory */                           \
  X(written)       /* bytes of the result, and of a c that is read, likewise */                       \
  X(slower)        /* the longer of `busiest` and `read` + `written` */                               \
  X(passes)        /* bytes that passes read and write: partial sums, copies of operands, likewise */ \
  X(edges)         /* cycles: each transposition that has tiles at an edge */                         \
  X(unaligned)     /* bytes of tiles from rows at any address, or inside sectors, as tiles */         \
  X(across)        /* bytes of tiles from rows that do not run along k, as tiles */                   \
  X(odd_result)    /* bytes of a result whose rows begin at any address, as written */                \
  X(least)         /* `read` + `written`, not added: its cost is the least that a product takes */

#define FASTGEMM_FIELD(name) double name = 0;
struct Counts {
  FASTGEMM_COUNTS(FASTGEMM_FIELD)
};
#undef FASTGEMM_FIELD
inline constexpr int kCounts = sizeof(Counts) / sizeof(double);

#define FASTGEMM_NAME(name) #name,
inline constexpr std::string_view kCountNames[] = {FASTGEMM_COUNTS(FASTGEMM_NAME)};
#undef FASTGEMM_NAME

// The counter of a row of rows.def. Its name is count_<row> unless several rows share it. count_library is
// for torch's library, which is not in rows.def.
using CountsOf = Counts(const GemmProblem&, const Gpu&);
using Counter = CountsOf*;
CountsOf count_tiled, count_thread_tile, count_vectorized, count_small, count_batched, count_cp_async,
    count_warp_specialized, count_narrow, count_direct, count_outer, count_small_tile, count_skinny,
    count_one_wave, count_split_k, count_wgmma_specialized, count_wgmma_boxes, count_mma_sync, count_dmma,
    count_crt, count_bf16x6, count_three_planes, count_int8x10, count_int16x4, count_bf16x6_fused,
    count_library;

}  // namespace fastgemm::predict
