// torch.ops.fastgemm.quantized_linear: activation(input @ weight^T + bias) + residual, where weight is given
// by codes of 4 or 8 bits and their scales (core/packed_weight.h).
#include <algorithm>
#include <array>
#include <vector>

#include "core/packed_weight.h"
#include "torch/choices.h"
#include "torch/layer.h"
#include "torch/ops.h"
#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

struct Arguments {
  Tensor input, codes;
  std::optional<Tensor> scales, zeros, global_scale, bias, residual;
  int64_t n;
  std::string code, scale, zero;
  bool units;
  int64_t group_n, group_k;
  std::optional<std::string> activation;
  std::optional<int64_t> level;
  std::optional<std::string> kernel;
  bool invariant;
  std::optional<int32_t> out_dtype;

  // In the order of the schema in library.cpp; braces evaluate from left to right.
  explicit Arguments(StackReader s)
      : input(s.tensor()),
        codes(s.tensor()),
        scales(s.optional_tensor()),
        zeros(s.optional_tensor()),
        global_scale(s.optional_tensor()),
        bias(s.optional_tensor()),
        residual(s.optional_tensor()),
        n(s.integer()),
        code(s.string()),
        scale(s.string()),
        zero(s.string()),
        units(s.flag()),
        group_n(s.integer()),
        group_k(s.integer()),
        activation(s.optional_string()),
        level(s.optional_integer()),
        kernel(s.optional_string()),
        invariant(s.flag()),
        out_dtype(s.optional_dtype()) {}
};

template <size_t count>
int index_of(const char* what, const std::string& name, const std::array<std::string_view, count>& names) {
  for (size_t i = 0; i < count; ++i)
    if (name == names[i]) return int(i) + 1;
  std::string accepted;
  for (const std::string_view n : names)
    accepted.append(accepted.empty() ? "'" : ", '").append(n).append("'");
  bad_value(std::string("unknown ") + what + " '" + name + "'; accepted: " + accepted);
}

PackedWeight weight_of(const Arguments& args) {
  using namespace std::string_view_literals;
  static constexpr std::array codes{"int4"sv, "nf4"sv, "e2m1"sv, "int8"sv, "e4m3"sv};
  static constexpr std::array scales{"f32"sv, "bf16"sv, "f16"sv, "e8m0"sv, "e4m3"sv};
  static constexpr std::array zeros{"subtracted"sv, "added"sv};
  PackedWeight w;
  w.code = static_cast<Code>(index_of("code", args.code, codes));
  w.scale = static_cast<ScaleType>(index_of("scale", args.scale, scales));
  if (args.zero != "none") w.zero = static_cast<Zero>(index_of("zero", args.zero, zeros));
  w.units = args.units, w.group_n = args.group_n, w.group_k = args.group_k;
  return w;
}

int32_t torch_dtype(ScaleType t) {
  constexpr std::array<int32_t, 6> types{-1, kFloat, kBFloat16, kHalf, kFloat8E8M0, kFloat8E4M3};
  return types[size_t(t)];
}

// A contiguous tensor of exactly this shape, on the device of the input. No kernel reads beyond it.
const void* require(const char* name, const Tensor& t, const View& x, std::vector<int64_t> shape,
                    int32_t dtype) {
  const View v(t);
  require_same_device(name, v, "input", x);
  if (v.dtype != dtype)
    bad_value(std::string(name) + " has dtype " + dtype_text(v.dtype) + ", expected " + dtype_text(dtype));
  int64_t step = 1;
  bool fits = std::ranges::equal(v.shape(), shape);
  for (int64_t d = 1; fits && d <= v.dim; step *= v.size(d), ++d)
    fits = v.size(d) == 1 || v.stride(d) == step;
  if (!fits)
    bad_value(std::string(name) + " must be contiguous with shape " + shape_text(shape) + ", got shape " +
              shape_text(v.shape()));
  return v.data;
}

void check_sizes(const Arguments& args, const View& x) {
  if (x.dim != 2) bad_value("input must have 2 dimensions, got shape " + shape_text(x.shape()));
  if (x.dtype != kFloat && x.dtype != kBFloat16 && x.dtype != kHalf)
    bad_value("input has dtype " + dtype_text(x.dtype) +
              "; packed weights multiply torch.float32, torch.bfloat16 and torch.float16");
  if (args.n < 0 || args.group_n < 1 || args.group_k < 1)
    bad_value("n must not be negative, and group_n and group_k must be positive, got " +
              shape_text(std::array{args.n, args.group_n, args.group_k}));
}

// Groups of the units are those that kernels know: parts of a unit, or whole units.
void check_units(const PackedWeight& w, int64_t k) {
  if (w.by_rows(k)) return;
  const bool parts = w.group_k == 16 || w.group_k == 32 || w.group_k == 64;
  if ((!parts && w.group_k % packed::kColumns != 0) || (w.group_n != 1 && w.group_n % packed::kRows != 0))
    bad_value(
        "on a GPU group_k must be 16, 32, 64, a multiple of 128 or at least k, and group_n 1 or a multiple "
        "of "
        "64; got " +
        shape_text(std::array{w.group_n, w.group_k}));
}

void set_scales(PackedWeight& w, const Arguments& args, const View& x, const std::vector<int64_t>& shape) {
  if (!args.scales) bad_value("scales are missing");
  w.scales = require("scales", *args.scales, x, shape, torch_dtype(w.scale));
  if (w.zero == Zero::none) return;
  if (!args.zeros) bad_value("zeros are missing");
  const int32_t type = w.zero == Zero::added ? torch_dtype(w.scale) : int32_t(kInt8);
  w.zeros = require("zeros", *args.zeros, x, shape, type);
}

// Fills in the addresses. Returns the address of the codes.
const void* set_addresses(PackedWeight& w, const Arguments& args, const View& x) {
  const int64_t n = args.n, k = x.size(1);
  if (args.global_scale)
    w.global = static_cast<const float*>(require("global_scale", *args.global_scale, x, {}, kFloat));
  if (w.units) {
    check_units(w, k);
    if (w.by_rows(k)) w.scale = ScaleType::f32, set_scales(w, args, x, {n});
    const void* codes = require(
        "codes", args.codes, x,
        {packed::blocks(n, packed::kRows), packed::blocks(k, packed::kColumns), packed::unit_bytes(w, k)},
        kUInt8);
    if (reinterpret_cast<uintptr_t>(codes) % 16 != 0)
      bad_value("codes must begin at a multiple of 16 bytes, because kernels read units in vectors");
    return codes;
  }
  set_scales(w, args, x, {packed::blocks(n, w.group_n), packed::blocks(k, w.group_k)});
  const bool small = bits_of(w.code) == 4;
  return require("codes", args.codes, x, {n, small ? (k + 1) / 2 : k},
                 small                  ? int32_t(kUInt8)
                 : w.code == Code::int8 ? int32_t(kInt8)
                                        : int32_t(kFloat8E4M3));
}

}  // namespace

void quantized_linear(StableIValue* stack, uint64_t, uint64_t) {
  const Arguments args{StackReader(stack)};
  ProductCall call{.a = viewed(args.input), .b = viewed(args.codes)};
  const View& x = call.a.view;
  check_sizes(args, x);
  call.packed = weight_of(args);
  // The product sees the codes as a matrix (n, k) of the type of a.
  const std::array<int64_t, 2> shape{args.n, x.size(1)}, strides{std::max<int64_t>(x.size(1), 1), 1};
  View& b = call.b.view;
  b.data = const_cast<void*>(set_addresses(call.packed, args, x));
  b.dim = 2, b.sizes = shape.data(), b.strides = strides.data(), b.dtype = x.dtype;
  call.trans_b = true;
  call.choice = choice_of(args.level, args.kernel);
  if (args.invariant) {
    if (!is_free(call.choice))
      bad_value("invariant=True chooses the kernel; it takes no level and no kernel");
    call.choice = {0, "invariant"};
  }
  call.out_dtype = args.out_dtype;
  const LayerTerms terms{args.bias, args.residual, activation_of(args.activation)};
  stack[0] = torch::stable::detail::from(multiply_layer(call, args.n, terms));
}

}  // namespace fastgemm::torch_ops
