#include "torch/context.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/ops.h>

#include <stdexcept>

namespace fastgemm::torch_ops {
namespace {

// A torch tensor over memory that the problem owns. data is not written through the const views.
Tensor wrap(const void* data, int32_t dtype, std::initializer_list<int64_t> shape,
            std::initializer_list<int64_t> strides) {
  AtenTensorHandle h;
  check(aoti_torch_create_tensor_from_blob(const_cast<void*>(data), int64_t(shape.size()), shape.begin(),
                                           strides.begin(), 0, dtype, aoti_torch_device_type_cpu(), 0, &h),
        "create_tensor_from_blob");
  return Tensor(h);
}

template <class M>
Tensor matrix(const M& m, int32_t dtype, int64_t rows, int64_t cols) {
  return wrap(m.data, dtype, {rows, cols}, {m.row_stride, m.col_stride});
}
template <class M>
Tensor matrices(const M& m, int32_t dtype, int64_t batch, int64_t rows, int64_t cols) {
  return wrap(m.data, dtype, {batch, rows, cols}, {m.batch_stride, m.row_stride, m.col_stride});
}

// torch 2.13's _int_mm gives wrong sums when the only row of an operand has a leading dimension below its
// length, which a transposed column vector has.
Tensor int8_operand(const ConstMatrix& m, int64_t index, int64_t rows, int64_t cols) {
  ConstMatrix member = m;
  member.data = static_cast<const char*>(m.data) + index * m.batch_stride;
  if (rows == 1 && m.col_stride == 1) member.row_stride = cols;
  return matrix(member, torch_dtype(DType::i8), rows, cols);
}

// _int_mm knows only contiguous results; the table's row rejects others.
void int8_product(const GemmProblem& p) {
  for (int64_t i = 0; i < p.batch; ++i) {
    const Tensor out = wrap(static_cast<int32_t*>(p.out.data) + i * p.out.batch_stride,
                            torch_dtype(DType::i32), {p.m, p.n}, {p.n, 1});
    check(aoti_torch_cpu__int_mm_out(out.get(), int8_operand(p.a, i, p.m, p.k).get(),
                                     int8_operand(p.b, i, p.k, p.n).get()),
          "_int_mm");
  }
}

void single_product(const GemmProblem& p, int32_t type) {
  const Tensor a = matrix(p.a, type, p.m, p.k), b = matrix(p.b, type, p.k, p.n),
               out = matrix(p.out, type, p.m, p.n);
  if (p.alpha == 1.0 && p.beta == 0.0) return check(aoti_torch_cpu_mm_out(out.get(), a.get(), b.get()), "mm");
  const Tensor c = p.c.data ? matrix(p.c, type, p.m, p.n) : out;
  check(aoti_torch_cpu_addmm_out(out.get(), c.get(), a.get(), b.get(), p.beta, p.alpha), "addmm");
}

void batched_product(const GemmProblem& p, int32_t type) {
  const Tensor a = matrices(p.a, type, p.batch, p.m, p.k), b = matrices(p.b, type, p.batch, p.k, p.n),
               out = matrices(p.out, type, p.batch, p.m, p.n);
  if (p.alpha == 1.0 && p.beta == 0.0)
    return check(aoti_torch_cpu_bmm_out(out.get(), a.get(), b.get()), "bmm");
  const Tensor c = p.c.data ? matrices(p.c, type, p.batch, p.m, p.n) : out;
  check(aoti_torch_cpu_baddbmm_out(out.get(), c.get(), a.get(), b.get(), p.beta, p.alpha), "baddbmm");
}

}  // namespace

CpuContext::CpuContext() : threads_(int(torch::stable::get_num_threads())) {}

void CpuContext::parallel(int64_t tasks, const std::function<void(int64_t)>& task) {
  if (tasks <= 1 || threads_ <= 1) return Context::parallel(tasks, task);
  torch::stable::parallel_for(0, tasks, 1, [&task](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) task(i);
  });
}

void CpuContext::torch_gemm(const GemmProblem& p) {
  if (p.type == DType::i8) return int8_product(p);
  const int32_t type = torch_dtype(p.type);
  p.batch == 1 ? single_product(p, type) : batched_product(p, type);
}

void CpuContext::torch_transpose(const TransposeProblem& p) {
  // Any dtype of the same width moves the same bytes: uint8, int16, float32, float64, complex128.
  constexpr int32_t codes[] = {0, 2, 6, 7, 10};
  const int32_t type = codes[int(p.type) - int(DType::bits8)];
  // One matrix at a time: torch's blocked copy serves 2-D tensors only, and is four times its strided one.
  const int size = element_size(p.type);
  for (int64_t i = 0; i < p.batch; ++i) {
    ConstMatrix member = p.src.transposed();
    Matrix result = p.dst;
    member.data = static_cast<const char*>(p.src.data) + i * p.src.batch_stride * size;
    result.data = static_cast<char*>(p.dst.data) + i * p.dst.batch_stride * size;
    const Tensor src = matrix(member, type, p.cols, p.rows), dst = matrix(result, type, p.cols, p.rows);
    check(aoti_torch_copy_(dst.get(), src.get(), 0), "copy_");
  }
}

}  // namespace fastgemm::torch_ops
