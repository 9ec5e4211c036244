// The passes of 8-bit floating-point numbers, by the instruction set of this processor.
#include <cstring>

#include "core/cpu_features.h"
#include "core/fp8.h"
#include "cpu/gemm/levels.h"

namespace fastgemm::cpu {

void run_widen_fp8(const WidenFp8& g, Context& ctx) {
  if (g.rows <= 0 || g.cols <= 0) return;
#if defined(__x86_64__)
  switch (cpu_features().isa()) {
    case Isa::avx512:
      return avx512::widen_fp8(g, ctx);
    case Isa::avx2:
      return avx2::widen_fp8(g, ctx);
    case Isa::baseline:
      break;
  }
#endif
  baseline::widen_fp8(g, ctx);
}

void run_quantize_fp8(const QuantizeFp8& g, Context& ctx) {
  if (g.rows <= 0 || g.cols <= 0) return;
  // A number for each block of each row: tasks that share a block each have their own.
  const size_t bytes = size_t(g.rows * g.scale_cols()) * sizeof(uint32_t);
  auto* const largest = static_cast<uint32_t*>(ctx.allocate(bytes));
  std::memset(largest, 0, bytes);
#if defined(__x86_64__)
  switch (cpu_features().isa()) {
    case Isa::avx512:
      return avx512::quantize_fp8(g, ctx, largest);
    case Isa::avx2:
      return avx2::quantize_fp8(g, ctx, largest);
    case Isa::baseline:
      break;
  }
#endif
  baseline::quantize_fp8(g, ctx, largest);
}

}  // namespace fastgemm::cpu
