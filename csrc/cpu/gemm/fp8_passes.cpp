// The passes of 8-bit floating-point numbers, by the instruction set of this processor.
#include <cstring>

#include "core/fp8.h"
#include "cpu/gemm/by_isa.h"

namespace fastgemm {

void cpu::run_widen_fp8(const WidenFp8& g, Context& ctx) {
  if (g.rows > 0 && g.cols > 0) FASTGEMM_BY_ISA(widen_fp8)(g, ctx);
}

void cpu::run_quantize_fp8(const QuantizeFp8& g, Context& ctx) {
  if (g.rows <= 0 || g.cols <= 0) return;
  // One number for each row and block of columns, so that tasks that share a block have numbers of their own.
  const size_t bytes = size_t(g.rows * g.scale_cols()) * sizeof(uint32_t);
  auto* const largest = static_cast<uint32_t*>(ctx.allocate(bytes));
  std::memset(largest, 0, bytes);
  FASTGEMM_BY_ISA(quantize_fp8)(g, ctx, largest);
}

}  // namespace fastgemm
