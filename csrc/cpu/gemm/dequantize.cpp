// Packed weights as matrices, by the instruction set of this processor. Threads share the rows.
#include "core/dequantize.h"

#include <algorithm>

#include "cpu/gemm/by_isa.h"

namespace fastgemm {

void dequantize(const PackedBlock& block) { FASTGEMM_BY_ISA(dequantize_block)(block); }

void cpu::run_dequantize(const Dequantize& d, Context& ctx) {
  if (d.n <= 0 || d.k <= 0) return;
  constexpr int64_t kTask = 1 << 18;  // weights of a task, which takes a twentieth of a millisecond
  const int64_t rows = std::clamp<int64_t>(kTask / d.k, 1, d.n), tasks = (d.n + rows - 1) / rows;
  ctx.parallel(tasks, [&](int64_t task) {
    const int64_t n = task * rows;
    dequantize({&d.packed, d.codes, d.k, n, std::min(rows, d.n - n), 0, d.k, d.type,
                static_cast<char*>(d.out.data) + n * d.out.row_stride * element_size(d.type),
                d.out.row_stride});
  });
}

}  // namespace fastgemm
