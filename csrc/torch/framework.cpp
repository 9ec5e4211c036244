#include "torch/framework.h"

namespace fastgemm::torch_ops {
namespace {

// Wraps memory that a problem owns as torch tensors. data is not written through the const views.
struct Wrapper {
  const Backend& backend;
  int32_t device_index;

  Tensor wrap(const void* data, int32_t dtype, std::initializer_list<int64_t> shape,
              std::initializer_list<int64_t> strides) const {
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
  // torch 2.13's _int_mm gives wrong sums when the only row of an operand has a leading dimension below its
  // length, which a transposed column vector has.
  Tensor int8_operand(const ConstMatrix& m, int64_t index, int64_t rows, int64_t cols) const {
    ConstMatrix member = m;
    member.data = static_cast<const char*>(m.data) + index * m.batch_stride;
    if (rows == 1 && m.col_stride == 1) member.row_stride = cols;
    return matrix(member, torch_dtype(DType::i8), rows, cols);
  }
};

// _int_mm knows only contiguous results; the table's row rejects others.
void int8_product(const Wrapper& w, const GemmProblem& p) {
  for (int64_t i = 0; i < p.batch; ++i) {
    const Tensor out = w.wrap(static_cast<int32_t*>(p.out.data) + i * p.out.batch_stride,
                              torch_dtype(DType::i32), {p.m, p.n}, {p.n, 1});
    check(w.backend.int_mm(out.get(), w.int8_operand(p.a, i, p.m, p.k).get(),
                           w.int8_operand(p.b, i, p.k, p.n).get()),
          "_int_mm");
  }
}

// In torch 2.11, oneDNN's bfloat16 product on a processor with AMX reads the old result although beta is 0,
// so that a NaN in it stays. Writing zeros first costs 1 % of a large product.
void clear_result(const Wrapper& w, const GemmProblem& p, const Tensor& out) {
  constexpr uint64_t kTorch213 = 0x020d000000000000;
  const bool on_cpu = w.backend.device_type == aoti_torch_device_type_cpu();
  if (on_cpu && p.type == DType::bf16 && p.beta == 0.0 && aoti_torch_abi_version() < kTorch213)
    check(aoti_torch_zero_(out.get()), "zero_");
}

void single_product(const Wrapper& w, const GemmProblem& p, int32_t type) {
  const Tensor a = w.matrix(p.a, type, p.m, p.k), b = w.matrix(p.b, type, p.k, p.n),
               out = w.matrix(p.out, type, p.m, p.n);
  clear_result(w, p, out);
  if (p.alpha == 1.0 && p.beta == 0.0) return check(w.backend.mm(out.get(), a.get(), b.get()), "mm");
  const Tensor c = p.c.data ? w.matrix(p.c, type, p.m, p.n) : out;
  check(w.backend.addmm(out.get(), c.get(), a.get(), b.get(), p.beta, p.alpha), "addmm");
}

void batched_product(const Wrapper& w, const GemmProblem& p, int32_t type) {
  const Tensor a = w.matrices(p.a, type, p.batch, p.m, p.k), b = w.matrices(p.b, type, p.batch, p.k, p.n),
               out = w.matrices(p.out, type, p.batch, p.m, p.n);
  clear_result(w, p, out);
  if (p.alpha == 1.0 && p.beta == 0.0) return check(w.backend.bmm(out.get(), a.get(), b.get()), "bmm");
  const Tensor c = p.c.data ? w.matrices(p.c, type, p.batch, p.m, p.n) : out;
  check(w.backend.baddbmm(out.get(), c.get(), a.get(), b.get(), p.beta, p.alpha), "baddbmm");
}

}  // namespace

void framework_gemm(const Backend& backend, int32_t device_index, const GemmProblem& p) {
  const Wrapper w{backend, device_index};
  if (p.type == DType::i8) return int8_product(w, p);
  const int32_t type = torch_dtype(p.type);
  p.batch == 1 ? single_product(w, p, type) : batched_product(w, p, type);
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
  // One matrix at a time: on a CPU torch's blocked copy serves 2-D tensors only, and is four times its
  // strided one.
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
