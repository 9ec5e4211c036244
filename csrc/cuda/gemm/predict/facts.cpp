#include "cuda/gemm/predict/facts.h"

namespace fastgemm::predict {
namespace {

// The largest power of two up to 32 that divides the address of every row: rows are `pitch` elements apart.
int alignment(const void* data, int64_t pitch, int64_t batch_stride, int size) {
  const uint64_t offsets = reinterpret_cast<uintptr_t>(data) | uint64_t((pitch | batch_stride) * size) | 32;
  return int(offsets & -offsets);
}

Operand operand(const ConstMatrix& x, int64_t side, int64_t k, int64_t batch, int64_t side_stride,
                int64_t k_stride, int size) {
  Operand o{.size = size, .side = side, .k = k};
  o.bytes = double(x.batch_stride == 0 ? 1 : batch) * double(side) * double(k) * size;
  o.along_k = k_stride == 1 || k == 1, o.along_side = side_stride == 1 || side == 1;
  const int64_t pitch = o.along_k ? (side == 1 ? 0 : side_stride) : (k == 1 ? 0 : k_stride);
  o.alignment = alignment(x.data, pitch, batch > 1 ? x.batch_stride : 0, size);
  return o;
}

}  // namespace

Facts facts(const GemmProblem& p) {
  if (p.out.col_stride != 1 && p.n != 1 && p.out.row_stride == 1) return facts(p.transposed());
  const int size = element_size(p.type), out_size = element_size(p.out_type);
  // Extents count as at least 1. Empty products are predicted, too, but their prediction does not matter.
  const auto some = [](int64_t x) { return std::max<int64_t>(x, 1); };
  Facts f{.batch = some(p.batch),
          .m = some(p.m),
          .n = some(p.n),
          .k = some(p.k),
          .size = size,
          .out_size = out_size};
  f.a = operand(p.a, f.m, f.k, f.batch, p.a.row_stride, p.a.col_stride, size);
  f.b = operand(p.b, f.n, f.k, f.batch, p.b.col_stride, p.b.row_stride, size);
  const int64_t pitch = p.m == 1 ? 0 : p.out.col_stride == 1 ? p.out.row_stride : p.out.col_stride;
  // A row that does not end at a multiple of 16 bytes is stored like one that does not begin at one.
  f.out_alignment = alignment(nullptr, pitch | p.n, p.batch > 1 ? p.out.batch_stride : 0, out_size);
  f.result_bytes = double(p.batch) * double(p.m) * double(p.n) * out_size;
  f.c_bytes = p.beta != 0 ? f.result_bytes : 0;
  return f;
}

}  // namespace fastgemm::predict
