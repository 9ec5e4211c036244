#include "torch/packed_arguments.h"

#include <algorithm>
#include <array>
#include <vector>

#include "torch/scalar_types.h"

namespace fastgemm::torch_ops {
namespace {

template <size_t count>
int index_of(const char* what, const std::string& name, const std::array<std::string_view, count>& names) {
  for (size_t i = 0; i < count; ++i)
    if (name == names[i]) return int(i) + 1;
  std::string accepted;
  for (const std::string_view n : names)
    accepted.append(accepted.empty() ? "'" : ", '").append(n).append("'");
  bad_value(std::string("unknown ") + what + " '" + name + "'; accepted: " + accepted);
}

PackedWeight weight_of(const PackedArguments& args) {
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

// The tensor whose device all others share.
struct Owner {
  const View& view;
  const char* name;
};

// A contiguous tensor of exactly this shape, on that device. No kernel reads beyond it.
const void* require(const char* name, const Tensor& t, const Owner& on, std::vector<int64_t> shape,
                    int32_t dtype) {
  const View v(t);
  require_same_device(name, v, on.name, on.view);
  if (v.dtype != dtype)
    bad_value(std::string(name) + " has dtype " + dtype_text(v.dtype) + ", expected " + dtype_text(dtype));
  int64_t step = 1;
  const bool empty = std::ranges::find(shape, 0) != shape.end();  // then strides mean nothing
  bool fits = std::ranges::equal(v.shape(), shape);
  for (int64_t d = 1; fits && d <= v.dim; step *= v.size(d), ++d)
    fits = empty || v.size(d) == 1 || v.stride(d) == step;
  if (!fits)
    bad_value(std::string(name) + " must be contiguous with shape " + shape_text(shape) + ", got shape " +
              shape_text(v.shape()));
  return v.data;
}

// Kernels know two kinds of groups: parts of a unit, and whole units.
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

void set_scales(PackedWeight& w, const PackedArguments& args, const Owner& on,
                const std::vector<int64_t>& shape) {
  if (!args.scales) bad_value("scales are missing");
  w.scales = require("scales", *args.scales, on, shape, torch_dtype(w.scale));
  if (w.zero == Zero::none) return;
  if (!args.zeros) bad_value("zeros are missing");
  const int32_t type = w.zero == Zero::added ? torch_dtype(w.scale) : int32_t(kInt8);
  w.zeros = require("zeros", *args.zeros, on, shape, type);
}

// Fills in the addresses. Returns the address of the codes.
const void* set_addresses(PackedWeight& w, const PackedArguments& args, int64_t k, const Owner& on) {
  const int64_t n = args.n;
  if (args.global_scale)
    w.global = static_cast<const float*>(require("global_scale", *args.global_scale, on, {}, kFloat));
  if (w.units) {
    check_units(w, k);
    if (w.by_rows(k)) w.scale = ScaleType::f32, set_scales(w, args, on, {n});
    const void* codes = require(
        "codes", args.codes, on,
        {packed::blocks(n, packed::kRows), packed::blocks(k, packed::kColumns), packed::unit_bytes(w, k)},
        kUInt8);
    if (reinterpret_cast<uintptr_t>(codes) % 16 != 0)
      bad_value("codes must begin at a multiple of 16 bytes, because kernels read units in vectors");
    return codes;
  }
  set_scales(w, args, on, {packed::blocks(n, w.group_n), packed::blocks(k, w.group_k)});
  const bool small = bits_of(w.code) == 4;
  return require("codes", args.codes, on, {n, small ? (k + 1) / 2 : k},
                 small                  ? int32_t(kUInt8)
                 : w.code == Code::int8 ? int32_t(kInt8)
                                        : int32_t(kFloat8E4M3));
}

}  // namespace

PackedOperands packed_operands(const PackedArguments& args, int64_t k, const View& on, const char* name) {
  if (args.n < 0 || args.group_n < 1 || args.group_k < 1)
    bad_value("n must not be negative, and group_n and group_k must be positive, got " +
              shape_text(std::array{args.n, args.group_n, args.group_k}));
  PackedOperands found{weight_of(args)};
  found.codes = set_addresses(found.weight, args, k, {on, name});
  return found;
}

}  // namespace fastgemm::torch_ops
