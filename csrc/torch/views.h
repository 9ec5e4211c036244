// Views: the properties of a tensor that ops need, read once. Also the loops over the batch dimensions of
// several tensors.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <array>
#include <span>
#include <string>

#include "core/problem.h"
#include "core/table.h"
#include "torch/boxed.h"

namespace fastgemm::torch_ops {

// Throws std::invalid_argument. An op does not know which function of the package was called; that function
// adds its name after "fastgemm" (python/fastgemm/_errors.py).
[[noreturn]] void bad_value(const std::string& text);

struct View {
  void* data = nullptr;
  const int64_t* sizes = nullptr;    // owned by the tensor
  const int64_t* strides = nullptr;  // in elements
  int64_t dim = 0;
  int32_t dtype = 0;  // c10::ScalarType
  int32_t device_type = 0, device_index = 0;

  View() = default;
  explicit View(const Tensor&);
  std::span<const int64_t> shape() const { return {sizes, size_t(dim)}; }
  int64_t size(int64_t from_end) const { return sizes[dim - from_end]; }
  int64_t stride(int64_t from_end) const { return strides[dim - from_end]; }
};

std::string shape_text(std::span<const int64_t> shape);  // "(3, 4)"
std::string dtype_text(int32_t dtype);                   // "torch.float32"
std::string number_text(double);                         // "0.5", "1e+30"

// The arithmetic type of a torch dtype. Throws
// std::invalid_argument, naming the argument and what is accepted.
DType arithmetic_type(const char* argument, int32_t dtype);
int32_t torch_dtype(DType);

// The scale (alpha or beta) of a product or sum of this type. For floating-point types it is the value given.
// Integer results wrap, so for 32 bits or fewer it is reduced modulo 2^32. Throws std::invalid_argument if an
// integer scale is not a whole number or does not fit in int64.
double scale_of(const char* name, double given, DType type);

// The stride of a dimension of size 1 has no effect. Sets it so that the matrix is row-major or column-major,
// if possible.
template <class M>
void settle_strides(M& m, int64_t rows, int64_t cols) {
  if (cols == 1)
    m.col_stride = 1;
  else if (rows == 1)
    m.row_stride = m.col_stride == 1 ? cols : 1;
}

// The last two dimensions as a matrix, exchanged if `transposed`.
template <class M>
M matrix_of(const View& v, bool transposed) {
  M m;
  m.data = v.data;
  m.row_stride = v.stride(2), m.col_stride = v.stride(1);
  settle_strides(m, v.size(2), v.size(1));
  if (transposed) std::swap(m.row_stride, m.col_stride);
  return m;
}

inline constexpr int kMaxDims = 64;  // more than anybody needs; View refuses tensors with more

// The loops over the dimensions of up to four operands, outermost first. The stride is 0 where an operand is
// broadcast. Adjacent dimensions are merged if one loop can cover both for every operand.
struct Loops {
  struct Dim {
    int64_t size = 1;
    std::array<int64_t, 4> stride{};
  };
  int count = 0;
  std::array<Dim, kMaxDims + 1> dims;  // + 1 for the parts of complex numbers

  void push(const Dim& d);  // appends an inner dimension, merged if possible
};

// Calls body(offsets) for each index of the first `count` dimensions; offsets in elements, per operand.
template <class Body>
void for_each_index(const Loops& loops, int count, const Body& body) {
  std::array<int64_t, kMaxDims> index{};
  std::array<int64_t, 4> offset{};
  for (;;) {
    body(offset);
    int d = count - 1;
    for (; d >= 0; --d) {
      const Loops::Dim& dim = loops.dims[size_t(d)];
      if (++index[size_t(d)] < dim.size) {
        for (size_t i = 0; i < 4; ++i) offset[i] += dim.stride[i];
        break;
      }
      for (size_t i = 0; i < 4; ++i) offset[i] -= dim.stride[i] * (dim.size - 1);
      index[size_t(d)] = 0;
    }
    if (d < 0) return;
  }
}

// Throws std::invalid_argument if a tensor has more than kMaxDims dimensions.
void require_dimensions(int64_t dim);

// Checks shared by the ops. Each throws std::invalid_argument with the name of the argument.
void require_same_device(const char* name, const View&, const char* first_name, const View& first);
void require_out(const View& out, std::span<const int64_t> shape, int32_t dtype, const char* name = "out");
bool may_overlap(const View& out, const View& in);  // false only if they certainly share no element
bool same_view(const View&, const View&);
void require_no_overlap(const View& out, const char* name, const View& in, const char* out_name = "out");

Tensor empty_contiguous(std::span<const int64_t> shape, int32_t dtype, const View& like);

// The layout that contiguous_matrices gives to a view: row-major matrices, one after another. A batch
// dimension with stride 0 (broadcast) stays so and needs no memory.
struct ContiguousMatrices {
  std::array<int64_t, kMaxDims> kept, strides;  // sizes of the copy; strides of the result
  explicit ContiguousMatrices(const View&);
};
Tensor contiguous_matrices(AtenTensorHandle from, const View& view);
Tensor contiguous_matrices(AtenTensorHandle from, const View& view,
                           int32_t dtype);  // converted to another type

}  // namespace fastgemm::torch_ops
