// Entry points of the kernels. table.cpp calls them only for problems with batch, m, n, k > 0 and contiguous
// rows of out.
#pragma once

#include "core/context.h"
#include "core/epilogue_pass.h"
#include "core/experts.h"
#include "core/fp8.h"
#include "cpu/gemm/packed_block.h"

#define FASTGEMM_CPU_GEMM_ENTRIES                                           \
  void gemm_simd(const GemmProblem& p, Context& ctx);                       \
  void gemm_microkernel(const GemmProblem& p, Context& ctx);                \
  void gemm_pipelined(const GemmProblem& p, Context& ctx);                  \
  void gemm_streamed_weights(const GemmProblem& p, Context& ctx);           \
  void epilogue_pass(const EpiloguePass& f, Context& ctx);                  \
  void dequantize_block(const PackedBlock& block);                          \
  void widen_fp8(const WidenFp8& g, Context& ctx);                          \
  void quantize_fp8(const QuantizeFp8& g, Context& ctx, uint32_t* largest); \
  void combine_rows(const CombineRows& g, Context& ctx);                    \
  void combine_gradients(const CombineGradients& g, Context& ctx);

namespace fastgemm {

void gemm_naive(const GemmProblem& p, Context& ctx);
void gemm_blocked(const GemmProblem& p, Context& ctx);
void gemm_packed(const GemmProblem& p, Context& ctx);

namespace baseline {
FASTGEMM_CPU_GEMM_ENTRIES
}

#if defined(__x86_64__)
namespace avx2 {
FASTGEMM_CPU_GEMM_ENTRIES
}
namespace avx512 {
FASTGEMM_CPU_GEMM_ENTRIES
}

void gemm_dot_bf16(const GemmProblem& p, Context& ctx);
void gemm_streamed_bf16(const GemmProblem& p, Context& ctx);
void gemm_dot_int8(const GemmProblem& p, Context& ctx);
void gemm_amx_bf16(const GemmProblem& p, Context& ctx);
void gemm_amx_int8(const GemmProblem& p, Context& ctx);
#elif defined(__aarch64__)
void gemm_mmla_bf16(const GemmProblem& p, Context& ctx);
void gemm_mmla_int8(const GemmProblem& p, Context& ctx);
#endif

}  // namespace fastgemm
