// The passes of 8-bit floating-point numbers, by the instruction set of this processor.
#include <algorithm>
#include <cstring>

#include "core/fp8.h"
#include "core/select.h"
#include "cpu/gemm/by_isa.h"

namespace fastgemm {

void cpu::run_widen_fp8(const WidenFp8& g, Context& ctx) {
  if (g.rows > 0 && g.cols > 0) FASTGEMM_BY_ISA(widen_fp8)(g, ctx);
}

void cpu::run_quantize_fp8(const QuantizeFp8& g, Context& ctx) {
  if (g.rows <= 0 || g.cols <= 0) return;
  const QuantizeFp8 t = g.transposed(nullptr);
  // One number for each row and block of columns, so that tasks that share a block have numbers of their own.
  const auto bytes_of = [](const QuantizeFp8& one) {
    return size_t(one.rows * one.scale_cols()) * sizeof(uint32_t);
  };
  const size_t of_t = g.codes_t == nullptr ? 0 : bytes_of(t);
  auto* const largest = static_cast<uint32_t*>(ctx.allocate(std::max(bytes_of(g), of_t)));
  const auto round = [&](const QuantizeFp8& one) {
    std::memset(largest, 0, bytes_of(one));
    FASTGEMM_BY_ISA(quantize_fp8)(one, ctx, largest);
  };
  if (g.codes_t != nullptr) {
    const int bytes = element_size(g.type);
    void* const x_t = ctx.allocate(size_t(g.rows * g.cols) * size_t(bytes));
    TransposeProblem p{.type = bytes == 2 ? DType::bits16 : DType::bits32, .rows = g.rows, .cols = g.cols};
    p.src = {g.x, g.row_stride, 1, 0}, p.dst = {x_t, g.rows, 1, 0};
    select(p, Device::cpu, ctx.threads(), {}).transpose(p, ctx);
    round(g.transposed(x_t));
  }
  if (g.codes != nullptr) round(g);
}

}  // namespace fastgemm
