// The launchers of GEMM on CUDA, one for each row of the table. Compiled by nvcc into namespace cuda, by g++
// for csrc/simt into namespace simt.
//
// The ladder is read in the files level1_*.cu to level6_*.cu here. What they are built from:
//   problem.cuh                what every kernel is given
//   tile.cuh, vector_tile.cuh  tiles of levels 2 to 4 in shared memory
//   ring_position.cuh          where a warp is in a ring of stages
//   level5/    panels, warp tiles, split-K and stream-K; small products
//   mma/       wmma, mma_sync, dmma and small_tile: swizzled tiles, the ring of stages that cp.async fills
//   wgmma/     wgmma, wgmma_specialized, split_k and skinny: tiles that the tensor memory accelerator brings,
//              the products of a warpgroup, the way of its sums to C, who computes what
//   operands/  matrices that the tensor cores cannot read where they are
//   sums/      the second launch of products whose sums go to the workspace first
//   special/   kernels that level 6 takes for special shapes (suits.h)
//   packed/    products of planes: float32 and int32 on the tensor cores
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
  DECLARE(gemm_narrow)               \
  DECLARE(gemm_bf16x6)               \
  DECLARE(gemm_bf16x6_fused)         \
  DECLARE(gemm_batched)              \
  DECLARE(gemm_fp16x3)               \
  DECLARE(gemm_bf16x3)               \
  DECLARE(gemm_int8x10)              \
  DECLARE(gemm_direct)               \
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
