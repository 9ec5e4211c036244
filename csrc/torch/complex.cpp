#include "torch/complex.h"

#include <algorithm>

#include "core/passes.h"
#include "torch/complex_rows.h"
#include "torch/context.h"
#include "torch/gemm_plan.h"
#include "torch/hooks.h"
#include "torch/plans.h"
#include "torch/scalar_types.h"
#include "torch/symmetric.h"

namespace fastgemm::torch_ops {
namespace {

// A view that owns its sizes and strides, so that they can be changed.
struct Strided {
  View view;
  std::array<int64_t, kMaxDims> sizes{}, strides{};

  explicit Strided(const View& v) : view(v) {
    std::copy_n(v.sizes, v.dim, sizes.begin()), std::copy_n(v.strides, v.dim, strides.begin());
    view.sizes = sizes.data(), view.strides = strides.data();
  }
  Strided(const Strided& other) : Strided(other.view) {}
  Strided& operator=(const Strided&) = delete;

  int64_t& size(int64_t from_end) { return sizes[size_t(view.dim - from_end)]; }
  int64_t& stride(int64_t from_end) { return strides[size_t(view.dim - from_end)]; }
  void transpose() { std::swap(size(1), size(2)), std::swap(stride(1), stride(2)); }

  // widen() turns rows of complex numbers into rows of real ones, where real and imaginary parts alternate.
  // It needs contiguous rows.
  bool has_rows() const { return view.size(1) <= 1 || view.stride(1) == 1; }
  void widen() {
    view.dtype = part_dtype(view.dtype);
    for (int64_t d = 0; d < view.dim; ++d) strides[size_t(d)] *= 2;
    size(1) *= 2, stride(1) = 1;
  }
};

// The memory of a view as a tensor that does not own it.
Tensor tensor_of(const View& v) {
  AtenTensorHandle h;
  check(aoti_torch_create_tensor_from_blob(v.data, v.dim, v.sizes, v.strides, 0, v.dtype, v.device_type,
                                           v.device_index, &h),
        "create_tensor_from_blob");
  return Tensor(h);
}

// A copy with the conjugated values. A conjugated view itself only marks its memory as conjugated.
Tensor resolved(const TensorRef& t) {
  const Tensor copy = empty_contiguous(t.view.shape(), t.view.dtype, t.view);
  check(aoti_torch_copy_(copy.get(), t.tensor, 0), "copy_");
  return copy;
}

// The right operand of the real product: the rows b and +-i b for each row b of op(b). Batch dimensions in
// which b is broadcast stay broadcast.
struct RightSide {
  Tensor memory;
  Strided rows;  // (..., 2 K, 2 N)

  RightSide(const Strided& b, bool conjugates, bool turns_back) : rows(b.view) {
    Strided kept(b);  // copies each matrix of a broadcast batch once
    for (int64_t d = 3; d <= kept.view.dim; ++d)
      if (kept.stride(d) == 0 && kept.size(d) != 0) kept.size(d) = 1;
    Strided doubled(kept);
    doubled.size(2) *= 2;
    memory = empty_contiguous(doubled.view.shape(), b.view.dtype, b.view);
    const View whole(memory);
    write(kept, whole, conjugates, turns_back);
    rows.view.data = whole.data;
    for (int64_t d = 1; d <= whole.dim; ++d)
      rows.stride(d) = d > 2 && b.view.stride(d) == 0 ? 0 : whole.stride(d);
    rows.size(2) *= 2;
    rows.widen();
  }

 private:
  static void write(const Strided& from, const View& to, bool conjugates, bool turns_back) {
    Loops loops;
    for (int64_t d = from.view.dim; d >= 3; --d)
      loops.push({from.view.size(d), {from.view.stride(d), to.stride(d), 0, 0}});
    const int64_t bytes = int64_t(aoti_torch_dtype_element_size(to.dtype));
    DoubledRows all{.part_bytes = int(bytes / 2), .conjugates = conjugates, .turns_back = turns_back};
    all.rows = from.view.size(2), all.cols = from.view.size(1);
    all.src.row_stride = from.view.stride(2), all.src.col_stride = from.view.stride(1);
    all.dst.row_stride = all.cols, all.dst.col_stride = 1;
    const int outer = std::max(loops.count - 1, 0);
    if (loops.count > 0) {
      const Loops::Dim& inner = loops.dims[size_t(outer)];
      all.batch = inner.size, all.src.batch_stride = inner.stride[0], all.dst.batch_stride = inner.stride[1];
    }
    if (std::ranges::find(to.shape(), 0) != to.shape().end()) return;
    with_context(to, [&](Context& context, Device device, int) {
      for_each_index(loops, outer, [&](const std::array<int64_t, 4>& offset) {
        DoubledRows d = all;
        d.src.data = static_cast<const char*>(from.view.data) + offset[0] * bytes;
        d.dst.data = static_cast<char*>(to.data) + offset[1] * bytes;
        passes_of(device).double_rows(d, context);
      });
    });
  }
};

// A view as rows of real numbers; it is copied first if its rows are not contiguous.
struct RealRows {
  std::optional<Tensor> copied;
  Strided rows;

  explicit RealRows(const Strided& given) : rows(given) {
    if (!given.has_rows()) {
      copied.emplace(contiguous_matrices(tensor_of(given.view).get(), given.view));
      const View made(*copied);
      rows.view.data = made.data;
      std::copy_n(made.strides, made.dim, rows.strides.begin());
    }
    rows.widen();
  }
};

// Makes a result exactly Hermitian; torch's product leaves it so only up to rounding errors.
void mirror_complex(const View& out, const Symmetry& symmetry) {
  Strided parts(out);
  parts.widen();
  with_context(out, [&](Context& context, Device device, int) {
    mirror_result(parts.view, symmetry, device, context);
  });
}

// Checks the shapes of a call as those of a real product.
Gemm checked(const ProductCall& call) {
  View a = call.a.view, b = call.b.view;
  require_complex(a, b, call.out_dtype);
  const int32_t type = a.dtype;
  a.dtype = b.dtype = part_dtype(type);
  Gemm g = describe(a, b, call.trans_a, call.trans_b);
  if (call.c) {
    View c = call.c.view;
    if (c.dtype != type)
      bad_value("c has dtype " + dtype_text(c.dtype) + ", expected that of the result, " + dtype_text(type));
    c.dtype = a.dtype;
    g.problem.out_type = g.problem.type;
    add_c(g, c, a);
  }
  if (call.out) {
    require_same_device("out", call.out.view, "a", call.a.view);
    require_out(call.out.view, g.result_shape(), type);
    require_no_overlap(call.out.view, "a", call.a.view), require_no_overlap(call.out.view, "b", call.b.view);
    if (call.c && !same_view(call.c.view, call.out.view)) require_no_overlap(call.out.view, "c", call.c.view);
  }
  return g;
}

// c with all columns of the result. The c given may have one column, which is then repeated.
Strided with_columns(const View& given, int64_t columns) {
  View c = given;
  constexpr int64_t kOne = 1;
  if (c.dim == 0) c.dim = 1, c.sizes = &kOne, c.strides = &kOne;
  Strided l(c);
  if (l.size(1) == 1 && columns != 1) l.size(1) = columns, l.stride(1) = 0;
  return l;
}

// The symmetry of a complex product. symmetric=True promises a Hermitian result.
Symmetry complex_symmetry(const ProductCall& call, const Gemm& g) {
  Symmetry s = symmetry_of(call, g.problem);
  const bool a = is_conjugated(call.a.tensor), b = is_conjugated(call.b.tensor);
  s.conjugated = s.asked || a != b, s.parts = 2;
  // A product leaves rounding errors in the imaginary parts of the diagonal, as MKL's does. On a CPU the
  // result is still in the caches, so the pass that makes it exact is cheap.
  if (call.a.view.device_type == aoti_torch_device_type_cpu()) s.asked = s.known;
  return s.known ? s : Symmetry{};
}

}  // namespace

bool is_complex(int32_t dtype) { return dtype >= kComplexHalf && dtype <= kComplexDouble; }
int32_t part_dtype(int32_t dtype) { return dtype - kComplexHalf + kHalf; }

void require_complex(const View& a, const View& b, const std::optional<int32_t>& out_dtype) {
  if (b.dtype != a.dtype)
    bad_value("b has dtype " + dtype_text(b.dtype) + ", but a has " + dtype_text(a.dtype) +
              "; they must be equal");
  if (out_dtype && *out_dtype != a.dtype)
    bad_value("out_dtype=" + dtype_text(*out_dtype) + " is not available for " + dtype_text(a.dtype) +
              " operands; accepted: " + dtype_text(a.dtype));
}

// The operands of the real product, and what they need to stay in memory.
struct ComplexProduct::Parts {
  RealRows left;
  RightSide right;
  std::optional<RealRows> addend, bias;
  Strided out;
  std::vector<Tensor> tensors;

  Parts(const Strided& a, const Strided& b, const ProductCall& call, const TensorRef& c, const TensorRef& row,
        const View& result)
      : left(a), right(b, is_conjugated(call.b.tensor), is_conjugated(call.a.tensor)), out(result) {
    if (c) addend.emplace(with_columns(c.view, result.size(1)));
    if (row) bias.emplace(Strided(row.view));
    out.widen();
  }
  TensorRef real(const Strided& rows) {
    tensors.push_back(tensor_of(rows.view));
    return {tensors.back().get(), rows.view};
  }
};

ComplexProduct::ComplexProduct(const ProductCall& given) : call_(given), gemm_(checked(given)) {
  call_.symmetry = complex_symmetry(call_, gemm_);
  if (!call_.c && call_.beta.value_or(0.0) != 0.0)
    bad_value("beta is " + number_text(*call_.beta) + " but there is no c");
  if (call_.c && call_.beta != 0.0)
    c_ = is_conjugated(call_.c.tensor) ? viewed(resolved_c_.emplace(resolved(call_.c))) : call_.c;
  if (call_.bias)
    bias_ =
        is_conjugated(call_.bias.tensor) ? viewed(resolved_bias_.emplace(resolved(call_.bias))) : call_.bias;
  // The rows for complex matrices add one matrix, not a bias and a residual; real products add both.
  row_ = bias_ ? nullptr : row_for(call_, gemm_);
  const bool in_place = call_.out && (Strided(call_.out.view).has_rows() || writes_columns()) &&
                        !is_conjugated(call_.out.tensor);
  in_place ? void(out_ = call_.out) : make_result();
}
ComplexProduct::~ComplexProduct() = default;

// Whether the row writes a column-major out in place. torch does, in a sixth of the time of a new tensor and
// a copy. The pass that makes a result symmetric needs contiguous rows.
bool ComplexProduct::writes_columns() const {
  const View& out = call_.out.view;
  return row_ && row_->name == kTorchRow && !call_.symmetry.known && out.stride(2) == 1;
}

void ComplexProduct::make_result() {
  made_.emplace(empty_contiguous(gemm_.result_shape(), call_.a.view.dtype, call_.a.view));
  out_ = viewed(*made_);
}

bool ComplexProduct::by_row() {
  if (!row_) return false;
  try {
    const bool is_half = multiply_by_row(*row_, call_, gemm_, c_, out_);
    if (is_half || call_.symmetry.asked) mirror_complex(out_.view, call_.symmetry);
    return true;
  } catch (const OutOfWorkspace&) {  // the real product may need less memory, but contiguous rows
    if (!Strided(out_.view).has_rows()) make_result();
    return false;
  }
}

ProductCall ComplexProduct::as_real() {
  Strided a(call_.a.view), b(call_.b.view);
  if (call_.trans_a) a.transpose();
  if (call_.trans_b) b.transpose();
  parts_ = std::make_unique<Parts>(a, b, call_, c_, bias_, out_.view);
  ProductCall real{.a = parts_->real(parts_->left.rows), .b = parts_->real(parts_->right.rows)};
  real.out = parts_->real(parts_->out);
  if (parts_->addend) real.c = parts_->real(parts_->addend->rows), real.beta = call_.beta;
  if (parts_->bias) real.bias = parts_->real(parts_->bias->rows);
  real.alpha = call_.alpha;
  real.choice = call_.choice, real.tune = call_.tune;
  real.precision = call_.precision.value_or(Precision::ieee);  // torch's flags apply to float32 only
  real.symmetry = call_.symmetry;
  return real;
}

AtenTensorHandle ComplexProduct::result() {
  if (!made_) return nullptr;
  AtenTensorHandle owned = nullptr;
  if (call_.out)
    check(aoti_torch_copy_(call_.out.tensor, made_->get(), 0), "copy_");
  else
    check(aoti_torch_new_tensor_handle(made_->get(), &owned), "new_tensor_handle");
  return owned;
}

}  // namespace fastgemm::torch_ops
