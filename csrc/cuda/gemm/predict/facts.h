// A problem as kernels find it in memory.
#pragma once

#include "core/gpu.h"
#include "core/min_max.h"
#include "core/problem.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {

using plans::ceil_div;

// An operand (side, k) as a kernel finds it in memory.
struct Operand {
  int size;  // bytes of an element
  int64_t side, k;
  double bytes;              // distinct bytes
  bool along_k, along_side;  // which index is contiguous
  int alignment;             // all rows begin at multiples of this number of bytes, a power of two up to 32

  bool aligned() const { return alignment >= 16; }
  // Whether rows are aligned, but begin in the middle of sectors of 32 bytes.
  bool splits_sectors() const { return aligned() && alignment < 32; }
  bool has_side_in_rows() const { return along_side && !along_k; }
  // The same condition as takes_loads_of() in parts/sides.cuh.
  bool takes_loads_of(int64_t count, bool in_k) const {
    return (in_k ? along_k && k % count == 0 : along_side && side % count == 0) &&
           alignment >= std::min<int64_t>(count * size, 32);
  }
};

struct Facts {
  int64_t batch, m, n, k;
  int size, out_size;  // bytes of an element
  Operand a, b;
  int out_alignment;  // as Operand::alignment
  double result_bytes, c_bytes;

  bool out_aligned() const { return out_alignment >= 16; }
  // Exchanges the operands if n > m, for kernels that read the operand of C's shorter side many times.
  Facts long_side_first() const {
    Facts f = *this;
    if (f.n > f.m) std::swap(f.m, f.n), std::swap(f.a, f.b);
    return f;
  }
  int64_t tiles(int64_t rows, int64_t columns) const {
    return batch * ceil_div(m, rows) * ceil_div(n, columns);
  }
};
// If C is column-major, these are the facts of the transposed problem, which kernels compute.
Facts facts(const GemmProblem&);

// The multiply-adds of a multiprocessor per cycle, at least 1.
inline double rate(const Gpu& gpu, Unit unit, DType type) {
  return std::max(multiply_adds(gpu, unit, type), 1.0);
}

}  // namespace fastgemm::predict
