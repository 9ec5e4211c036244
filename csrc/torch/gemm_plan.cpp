#include "torch/gemm_plan.h"

#include <algorithm>

#include "core/names.h"
#include "torch/complex.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

void check_operand(const char* name, const View& v) {
  if (v.dim < 2)
    bad_value(std::string(name) + " must have at least 2 dimensions, got shape " + shape_text(v.shape()));
}

// The product type for operands of these types. bool operands are read as uint8, in the same memory, where
// the other is bool or a byte: an element of the product is the number of k at which both operands are true.
DType product_type(const View& a, const View& b) {
  const auto is_byte = [](int32_t t) { return t == kBool || t == kUInt8 || t == kInt8; };
  const bool bytes = is_byte(a.dtype) && is_byte(b.dtype);
  const auto read = [bytes](int32_t t) { return bytes && t == kBool ? int32_t(kUInt8) : t; };
  const DType x = arithmetic_type("a", read(a.dtype));
  if (read(a.dtype) == read(b.dtype)) return x;
  if (bytes) return x == DType::u8 ? DType::u8i8 : DType::i8u8;
  bad_value("b has dtype " + dtype_text(b.dtype) + ", but a has " + dtype_text(a.dtype) +
            "; they must be equal");
}

// The size of batch dimension d, counted from the end: 3 is the innermost. 1 if v has no such dimension.
int64_t batch_size(const View& v, int64_t d) { return d <= v.dim ? v.size(d) : 1; }
int64_t batch_stride(const View& v, int64_t d) { return d <= v.dim && v.size(d) != 1 ? v.stride(d) : 0; }

// Turns a batch into one tall matrix, if all members share b and the rows of one member follow those of the
// member before at the same stride. If each member has one row, the batch stride becomes the row stride.
void merge_batch_into_rows(GemmProblem& p) {
  if (p.batch == 1 || p.b.batch_stride != 0 || p.symmetry.known) return;
  GemmProblem tall = p;
  tall.m *= p.batch;
  tall.batch = 1;
  const auto goes_on = [&](auto& m, int64_t cols) {
    if (p.m == 1 && m.batch_stride >= cols) m.row_stride = m.batch_stride;
    if (m.batch_stride != m.row_stride * p.m) return false;
    settle_strides(m, tall.m, cols);
    return m.row_stride == 1 || m.col_stride == 1;
  };
  if (!goes_on(tall.a, p.k) || !goes_on(tall.out, p.n)) return;
  if (p.c.data) {
    if (p.m == 1) tall.c.row_stride = p.c.batch_stride;
    if (p.c.batch_stride != tall.c.row_stride * p.m) return;
  }
  p = tall;
}

}  // namespace

Gemm describe(const View& a, const View& b, bool trans_a, bool trans_b) {
  check_operand("a", a), check_operand("b", b);
  require_same_device("b", b, "a", a);
  Gemm g;
  GemmProblem& p = g.problem;
  p.type = product_type(a, b);
  p.a = matrix_of<ConstMatrix>(a, trans_a), p.b = matrix_of<ConstMatrix>(b, trans_b);
  p.m = a.size(trans_a ? 1 : 2), p.k = a.size(trans_a ? 2 : 1), p.n = b.size(trans_b ? 2 : 1);
  if (b.size(trans_b ? 1 : 2) != p.k)
    bad_value("inner sizes differ: a" + std::string(trans_a ? " (transposed)" : "") + " is " +
              shape_text(a.shape()) + ", b" + (trans_b ? " (transposed)" : "") + " is " +
              shape_text(b.shape()));

  g.dim = size_t(std::max(a.dim, b.dim));
  for (size_t d = 0; d + 2 < g.dim; ++d) {
    const auto from_end = int64_t(g.dim - d);
    const int64_t x = batch_size(a, from_end), y = batch_size(b, from_end);
    if (x != y && x != 1 && y != 1)
      bad_value("batch dimensions of a " + shape_text(a.shape()) + " and b " + shape_text(b.shape()) +
                " do not broadcast");
    g.shape[d] = x == 1 ? y : x;
  }
  g.shape[g.dim - 2] = p.m, g.shape[g.dim - 1] = p.n;
  return g;
}

DType result_type_of(DType type, const std::optional<int32_t>& asked) {
  const DType usual = result_type(type);
  if (!asked || *asked == torch_dtype(usual)) return usual;
  const bool half = type == DType::f16 || type == DType::bf16;
  if (half && *asked == torch_dtype(DType::f32)) return DType::f32;
  bad_value("out_dtype=" + dtype_text(*asked) + " is not available for " + std::string(to_string(type)) +
            " operands; accepted: " + dtype_text(torch_dtype(usual)) +
            (half                 ? " and torch.float32"
             : type == DType::i16 ? " and torch.int64"
                                  : ""));
}

DType with_sums(DType type, const std::optional<int32_t>& asked) {
  return type == DType::i16 && asked.value_or(kInt64) == kInt64 ? DType::i16i64 : type;
}

void check_precision(Precision precision, DType type) {
  if (precision != Precision::ieee && type != type_of(precision))
    bad_value("precision='" + std::string(to_string(precision)) + "' is for " +
              std::string(to_string(type_of(precision))) + " operands only");
}

DType type_of_product(const View& a, const View& b, const std::optional<int32_t>& asked) {
  return with_sums(product_type(a, b), asked);
}

int32_t result_dtype(const View& a, const View& b, const std::optional<int32_t>& asked) {
  if (!is_complex(a.dtype)) {
    return torch_dtype(result_type_of(type_of_product(a, b, asked), asked));
  }
  require_complex(a, b, asked);
  return a.dtype;
}

void add_c(Gemm& g, const View& c, const View& a) {
  require_same_device("c", c, "a", a);
  if (c.dtype != torch_dtype(g.problem.out_type))
    bad_value("c has dtype " + dtype_text(c.dtype) + ", expected that of the result, " +
              dtype_text(torch_dtype(g.problem.out_type)));
  bool fits = size_t(c.dim) <= g.dim;
  for (int64_t d = 1; fits && d <= c.dim; ++d)
    fits = c.size(d) == 1 || c.size(d) == g.shape[g.dim - size_t(d)];
  if (!fits)
    bad_value("c has shape " + shape_text(c.shape()) + ", which does not broadcast to " +
              shape_text(g.result_shape()));
  g.problem.c = {c.data, batch_stride(c, 2), batch_stride(c, 1), 0};
}

void set_scales(GemmProblem& p, double alpha, double beta) {
  p.alpha = alpha, p.beta = beta;
  if (beta == 0.0) p.c.data = nullptr;
  if (alpha == 0.0) p.k = 0;  // an empty sum
}

void plan_batches(Gemm& g, const View& a, const View& b, const View* c, const View& out) {
  for (size_t d = 0; d + 2 < g.dim; ++d) {
    const auto from_end = int64_t(g.dim - d);
    g.loops.push({g.shape[d],
                  {batch_stride(a, from_end), batch_stride(b, from_end), c ? batch_stride(*c, from_end) : 0,
                   batch_stride(out, from_end)}});
  }
}

GemmProblem Gemm::innermost() const {
  GemmProblem p = problem;
  if (loops.count == 0) return p;
  const Loops::Dim& inner = loops.dims[size_t(loops.count - 1)];
  p.batch = inner.size;
  p.a.batch_stride = inner.stride[0], p.b.batch_stride = inner.stride[1];
  p.c.batch_stride = inner.stride[2], p.out.batch_stride = inner.stride[3];
  merge_batch_into_rows(p);
  return p;
}

bool is_scattered(const ConstMatrix& m, int64_t rows, int64_t cols) {
  return rows > 1 && cols > 1 && m.row_stride != 1 && m.col_stride != 1;
}

}  // namespace fastgemm::torch_ops
