#include "torch/framework.h"

#include <algorithm>

namespace fastgemm::torch_ops {
namespace {

using Sizes = std::initializer_list<int64_t>;

// A matrix, or a batch of matrices, as a tensor. It is the op's own tensor if the layout is the same, else a
// view of it that does not track gradients. A new tensor made from the address would cost 0.6 us more, and
// on a GPU torch would ask the driver about the address.
class TensorView {
 public:
  TensorView(const Operand& of, const void* data, DType type, Sizes shape, Sizes strides) {
    const View& whole = *of.view;
    if (!of.copied && data == whole.data && std::ranges::equal(shape, whole.shape()) &&
        std::ranges::equal(strides, std::span(whole.strides, size_t(whole.dim)))) {
      handle_ = of.tensor;
      return;
    }
    const int64_t offset =
        (static_cast<const char*>(data) - static_cast<const char*>(whole.data)) / element_size(type);
    check(aoti_torch__reinterpret_tensor(of.tensor, int64_t(shape.size()), shape.begin(), strides.begin(),
                                         offset, &handle_),
          "_reinterpret_tensor");
    owned_ = true;
  }
  ~TensorView() {
    if (owned_) aoti_torch_delete_tensor_object(handle_);
  }
  TensorView(const TensorView&) = delete;
  TensorView& operator=(const TensorView&) = delete;

  AtenTensorHandle get() const { return handle_; }

 private:
  AtenTensorHandle handle_ = nullptr;
  bool owned_ = false;
};
template <class M>
TensorView matrix(const Operand& of, const M& m, DType type, int64_t rows, int64_t cols) {
  return {of, m.data, type, {rows, cols}, {m.row_stride, m.col_stride}};
}
template <class M>
TensorView matrices(const Operand& of, const M& m, DType type, int64_t batch, int64_t rows, int64_t cols) {
  return {of, m.data, type, {batch, rows, cols}, {m.batch_stride, m.row_stride, m.col_stride}};
}

// A single row (column) may have any leading dimension. This one lets torch find the layout: it takes a
// column with leading dimension 1 for a matrix with rows of one number, and multiplies it by a row in 10 to
// 50 times the time of a dot product. torch 2.13's _int_mm gives wrong sums, or writes none, if the leading
// dimension is smaller than the row (column).
ConstMatrix with_leading_dimension(ConstMatrix m, int64_t rows, int64_t cols) {
  if (rows == 1 && m.col_stride == 1)
    m.row_stride = cols;
  else if (cols == 1 && m.row_stride == 1)
    m.col_stride = rows;
  return m;
}
TensorView operand(const Operand& of, const ConstMatrix& m, DType type, int64_t rows, int64_t cols) {
  return matrix(of, with_leading_dimension(m, rows, cols), type, rows, cols);
}
TensorView operands(const Operand& of, const ConstMatrix& m, DType type, int64_t batch, int64_t rows,
                    int64_t cols) {
  return matrices(of, with_leading_dimension(m, rows, cols), type, batch, rows, cols);
}

TensorView int8_operand(const Operand& of, const ConstMatrix& m, int64_t index, int64_t rows, int64_t cols) {
  ConstMatrix member = m;
  member.data = static_cast<const char*>(m.data) + index * m.batch_stride;
  return operand(of, member, DType::i8, rows, cols);
}

// _int_mm writes only contiguous results; the row of the table rejects others.
void int8_product(const Backend& backend, const Operands& t, const GemmProblem& p) {
  for (int64_t i = 0; i < p.batch; ++i) {
    const auto* first = static_cast<int32_t*>(p.out.data) + i * p.out.batch_stride;
    const TensorView out(t.out, first, DType::i32, {p.m, p.n}, {p.n, 1});
    check(backend.int_mm(out.get(), int8_operand(t.a, p.a, i, p.m, p.k).get(),
                         int8_operand(t.b, p.b, i, p.k, p.n).get()),
          "_int_mm");
  }
}

// In torch 2.11, oneDNN's bfloat16 product on a processor with AMX reads the old result although beta is 0,
// so a NaN in it stays. Writing zeros first costs 1 % of a large product's time.
void clear_result(const Backend& backend, const GemmProblem& p, const TensorView& out) {
  constexpr uint64_t kTorch213 = 0x020d000000000000;
  const bool on_cpu = backend.device_type == aoti_torch_device_type_cpu();
  if (on_cpu && p.type == DType::bf16 && p.beta == 0.0 && aoti_torch_abi_version() < kTorch213)
    check(aoti_torch_zero_(out.get()), "zero_");
}

// Whether c is the result itself. A c of one row or one column may have other strides than out; torch would
// reject it, because it overlaps the result.
bool adds_to_result(const GemmProblem& p) {
  if (!p.c.data) return true;
  return p.c.data == p.out.data && (p.m == 1 || p.c.row_stride == p.out.row_stride) &&
         (p.n == 1 || p.c.col_stride == p.out.col_stride) &&
         (p.batch == 1 || p.c.batch_stride == p.out.batch_stride);
}

void single_product(const Backend& backend, const Operands& t, const GemmProblem& p) {
  const TensorView a = operand(t.a, p.a, p.type, p.m, p.k), b = operand(t.b, p.b, p.type, p.k, p.n),
                   out = matrix(t.out, p.out, p.out_type, p.m, p.n);
  clear_result(backend, p, out);
  if (p.alpha == 1.0 && p.beta == 0.0) return check(backend.mm(out.get(), a.get(), b.get()), "mm");
  if (adds_to_result(p))
    return check(backend.addmm(out.get(), out.get(), a.get(), b.get(), p.beta, p.alpha), "addmm");
  // A bias row is passed as a vector, which torch's libraries add in their epilogue. A matrix would be
  // copied.
  const bool is_row = p.c.row_stride == 0 && p.c.col_stride == 1;
  const TensorView c =
      is_row ? TensorView(t.c, p.c.data, p.out_type, {p.n}, {1}) : matrix(t.c, p.c, p.out_type, p.m, p.n);
  check(backend.addmm(out.get(), c.get(), a.get(), b.get(), p.beta, p.alpha), "addmm");
}

void batched_product(const Backend& backend, const Operands& t, const GemmProblem& p) {
  const TensorView a = operands(t.a, p.a, p.type, p.batch, p.m, p.k),
                   b = operands(t.b, p.b, p.type, p.batch, p.k, p.n),
                   out = matrices(t.out, p.out, p.out_type, p.batch, p.m, p.n);
  clear_result(backend, p, out);
  if (p.alpha == 1.0 && p.beta == 0.0) return check(backend.bmm(out.get(), a.get(), b.get()), "bmm");
  if (adds_to_result(p))
    return check(backend.baddbmm(out.get(), out.get(), a.get(), b.get(), p.beta, p.alpha), "baddbmm");
  const TensorView c = matrices(t.c, p.c, p.out_type, p.batch, p.m, p.n);
  check(backend.baddbmm(out.get(), c.get(), a.get(), b.get(), p.beta, p.alpha), "baddbmm");
}

// Wraps the memory of a problem in torch tensors of any dtype. Nothing is written to const matrices.
struct Wrapper {
  const Backend& backend;
  int32_t device_index;

  Tensor wrap(const void* data, int32_t dtype, Sizes shape, Sizes strides) const {
    AtenTensorHandle h;
    check(
        aoti_torch_create_tensor_from_blob(const_cast<void*>(data), int64_t(shape.size()), shape.begin(),
                                           strides.begin(), 0, dtype, backend.device_type, device_index, &h),
        "create_tensor_from_blob");
    return Tensor(h);
  }
  template <class M>
  Tensor matrix(const M& m, int32_t dtype, int64_t rows, int64_t cols) const {
    return wrap(m.data, dtype, {rows, cols}, {m.row_stride, m.col_stride});
  }
  template <class M>
  Tensor matrices(const M& m, int32_t dtype, int64_t batch, int64_t rows, int64_t cols) const {
    return wrap(m.data, dtype, {batch, rows, cols}, {m.batch_stride, m.row_stride, m.col_stride});
  }
};

}  // namespace

void framework_gemm(const Backend& backend, const Operands& t, const GemmProblem& p) {
  if (p.type == DType::i8) return int8_product(backend, t, p);
  p.batch == 1 ? single_product(backend, t, p) : batched_product(backend, t, p);
}

void framework_transpose(const Backend& backend, int32_t device_index, const TransposeProblem& p) {
  const Wrapper w{backend, device_index};
  // Any dtype of the same width moves the same bytes: uint8, int16, float32, float64, complex128.
  constexpr int32_t codes[] = {0, 2, 6, 7, 10};
  const int32_t type = codes[int(p.type) - int(DType::bits8)];
  if (backend.device_type != aoti_torch_device_type_cpu()) {
    const Tensor src = w.matrices(p.src.transposed(), type, p.batch, p.cols, p.rows),
                 dst = w.matrices(p.dst, type, p.batch, p.cols, p.rows);
    return check(aoti_torch_copy_(dst.get(), src.get(), 0), "copy_");
  }
  // One matrix at a time: on a CPU torch's blocked copy takes only 2-D tensors, and it is four times as fast
  // as the strided copy.
  const int size = element_size(p.type);
  for (int64_t i = 0; i < p.batch; ++i) {
    ConstMatrix member = p.src.transposed();
    Matrix result = p.dst;
    member.data = static_cast<const char*>(p.src.data) + i * p.src.batch_stride * size;
    result.data = static_cast<char*>(p.dst.data) + i * p.dst.batch_stride * size;
    const Tensor src = w.matrix(member, type, p.cols, p.rows), dst = w.matrix(result, type, p.cols, p.rows);
    check(aoti_torch_copy_(dst.get(), src.get(), 0), "copy_");
  }
}

}  // namespace fastgemm::torch_ops
