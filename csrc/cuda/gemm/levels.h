// The launchers of GEMM on CUDA, one for each row of the table. Compiled by nvcc into namespace cuda, by g++
// for csrc/simt into namespace simt.
#pragma once

#include "core/context.h"

#define FASTGEMM_CUDA_GEMM(DECLARE)  \
  DECLARE(gemm_naive)                \
  DECLARE(gemm_naive_uncoalesced)    \
  DECLARE(gemm_tiled)                \
  DECLARE(gemm_thread_tile)          \
  DECLARE(gemm_thread_tile_unpadded) \
  DECLARE(gemm_vectorized)           \
  DECLARE(gemm_cp_async)             \
  DECLARE(gemm_warp_specialized)     \
  DECLARE(gemm_wgmma)                \
  DECLARE(gemm_wgmma_specialized)    \
  DECLARE(gemm_skinny)               \
  DECLARE(gemm_bf16x6)               \
  DECLARE(gemm_bf16x6_fused)         \
  DECLARE(gemm_batched)              \
  DECLARE(gemm_fp16x3)               \
  DECLARE(gemm_bf16x3)               \
  DECLARE(gemm_int8x10)              \
  DECLARE(gemm_small_tile)           \
  DECLARE(gemm_split_k)              \
  DECLARE(gemm_mma_sync)             \
  DECLARE(gemm_wmma)                 \
  DECLARE(gemm_dmma)                 \
  DECLARE(gemm_dmma_m8n8k4)          \
  DECLARE(gemm_float4_padded65)      \
  DECLARE(gemm_float4_padded68)      \
  DECLARE(gemm_double_buffer_sync)

// The shared memory that a block of the portable tensor-core rungs takes at most.
namespace fastgemm {
inline constexpr int kLargeBlockBytes = 144 << 10;
}

#define FASTGEMM_DECLARE(name) void name(const GemmProblem&, Context&);
namespace fastgemm::cuda {
FASTGEMM_CUDA_GEMM(FASTGEMM_DECLARE)
}
namespace fastgemm::simt {
FASTGEMM_CUDA_GEMM(FASTGEMM_DECLARE)
}
#undef FASTGEMM_DECLARE
