// What kernels that compute C in tiles have in common, counted: the tiles that a multiprocessor has, the
// bytes that they load, and what is copied first.
#pragma once

#include <algorithm>

#include "cuda/gemm/predict/counts.h"
#include "cuda/gemm/predict/plans.h"

namespace fastgemm::predict {

using plans::ceil_div;

// An operand (side, k) as a kernel meets it.
struct Operand {
  int size;  // bytes of an element
  int64_t side, k, batch;
  double bytes;              // distinct ones
  bool along_k, along_side;  // what is contiguous
  int alignment;             // bytes, a power of two up to 32, of which all rows begin at multiples

  bool aligned() const { return alignment >= 16; }
  // As takes_loads_of() in parts/sides.cuh.
  bool takes_loads_of(int64_t count, bool in_k) const {
    return (in_k ? along_k && k % count == 0 : along_side && side % count == 0) &&
           alignment >= std::min<int64_t>(count * size, 32);
  }
};

struct Facts {
  int64_t batch, m, n, k;
  int size, out_size;  // bytes of an element
  Operand a, b;
  int out_alignment;  // as of an operand
  double result_bytes, c_bytes;

  bool out_aligned() const { return out_alignment >= 16; }
  // With the longer side of C first: for kernels that read the shorter one many times.
  Facts long_side_first() const {
    Facts f = *this;
    if (f.n > f.m) std::swap(f.m, f.n), std::swap(f.a, f.b);
    return f;
  }
  int64_t tiles(int64_t rows, int64_t columns) const {
    return batch * ceil_div(m, rows) * ceil_div(n, columns);
  }
};
Facts facts(const GemmProblem&);  // of the transposed one where C lies by columns, as kernels compute it

// Multiply-adds a cycle of a multiprocessor, at least 1.
inline double rate(const Gpu& gpu, Unit unit, DType type) {
  return std::max(multiply_adds(gpu, unit, type), 1.0);
}

// A launch of tiles (m, n), of which a multiprocessor has `resident` at a time, and which have `depth` values
// of k in a step. `splits` blocks share the k of a tile.
struct Launch {
  int64_t m, n, depth, resident, splits = 1;
  bool shares = false;  // persistent blocks share all work evenly
};
Counts count_tiles(const Facts&, const Launch&, const Gpu&, double multiply_adds_a_cycle);

// One launch that copies operands as they lie: parts/panels.cuh, parts/row_copies.cuh.
void add_copies(Counts&, const Facts&, const Gpu&, bool a, bool b);
// One launch that writes an operand along k: parts/copied_operand.cuh.
void add_transposed(Counts&, const Operand&, const Gpu&);
// Whether struct BoxOperands has B^T for A and A^T for B, what it copies, and what rows_operands() does.
bool swaps_boxes(const Facts&, bool registers);
void add_boxes(Counts&, const Facts&, const Gpu&, bool registers);
void add_rows(Counts&, const Facts&, const Gpu&, bool takes_any);

}  // namespace fastgemm::predict
