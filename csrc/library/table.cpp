// Level 7: vendor libraries and the framework as rows of the table. On the CPU the library is whatever
// torch was built with (MKL, oneDNN), reached through the context, so that this folder needs no torch.
#include "core/table.h"

namespace fastgemm {
namespace {

void torch_gemm(const GemmProblem& p, Context& c) { c.torch_gemm(p); }
void torch_transpose(const TransposeProblem& p, Context& c) { c.torch_transpose(p); }

bool has_leading_dimension(const ConstMatrix& m, int64_t rows, int64_t cols) {
  return (m.col_stride == 1 && (rows == 1 || m.row_stride >= cols)) ||
         (m.row_stride == 1 && (cols == 1 || m.col_stride >= rows));
}

// torch 2.13's _int_mm gives wrong sums for other strides and refuses other results.
const char* int8_rejects(const GemmProblem& p) {
  if (!has_leading_dimension(p.a, p.m, p.k) || !has_leading_dimension(p.b, p.k, p.n))
    return "torch._int_mm takes row-major and column-major operands only";
  const bool contiguous = (p.m == 1 || p.out.row_stride == p.n) && (p.n == 1 || p.out.col_stride == 1);
  return p.out.data && !contiguous ? "torch._int_mm writes contiguous results only" : nullptr;
}

const char* torch_rejects(const GemmProblem& p) {
  if (p.precision != Precision::ieee) return "torch's CPU product follows its own global flags";
  if (p.type != DType::i8 && p.out_type != p.type) return "torch's CPU product has no out_dtype";
  if (is_integer(p.type) && (p.alpha != 1.0 || p.beta != 0.0))
    return "torch's C interface has no integer alpha and beta";
  if (p.type == DType::i8) return int8_rejects(p);
  return nullptr;
}

constexpr Kernel gemm_row() {
  Kernel k{Op::gemm,
           Device::cpu,
           7,
           "torch",
           kGemmTypes,
           "any CPU",
           "torch.mm: MKL or oneDNN, whichever torch links"};
  k.gemm = torch_gemm;
  k.rejects = torch_rejects;
  return k;
}
constexpr Kernel transpose_row() {
  Kernel k{Op::transpose, Device::cpu, 7, "torch", kTransposeTypes, "any CPU", "copy_ of a transposed view"};
  k.transpose = torch_transpose;
  return k;
}
constexpr Kernel rows[] = {gemm_row(), transpose_row()};

}  // namespace

std::span<const Kernel> library_kernels() { return rows; }

}  // namespace fastgemm
