#include "torch/override/scales.h"

namespace fastgemm::override {
namespace {

constexpr int64_t kBlock = 128;

int64_t blocks_in(int64_t size) { return (size + kBlock - 1) / kBlock; }
int64_t rounded_up(int64_t blocks) { return (blocks + 3) / 4 * 4; }

bool has_shape(const at::Tensor& t, int64_t rows, int64_t cols) {
  return t.dim() == 2 && t.size(0) == rows && t.size(1) == cols;
}

// The scales of _scaled_mm, whose shape says the recipe; `given` has a row for each block of lines.
std::optional<Scales> scales_by_shape(const at::Tensor& given, int64_t lines, int64_t k) {
  if (has_shape(given, lines, 1)) return Scales{given, Recipe::row, lines, k};
  if (given.numel() == 1) return Scales{given.reshape({1, 1}), Recipe::tensor, lines, k};
  if (has_shape(given, lines, blocks_in(k))) return Scales{given, Recipe::of_128, lines, k};
  if (has_shape(given, blocks_in(lines), blocks_in(k))) return Scales{given, Recipe::of_128x128, lines, k};
  return std::nullopt;
}

// The scales of _scaled_mm_v2.
std::optional<Scales> scales_by_name(const at::Tensor& given, Recipe recipe, int64_t lines, int64_t k) {
  switch (recipe) {
    case Recipe::tensor:
      if (given.numel() == 1) return Scales{given.reshape({1, 1}), recipe, lines, k};
      break;
    case Recipe::row:
      if (has_shape(given, lines, 1)) return Scales{given, recipe, lines, k};
      if (has_shape(given, 1, lines)) return Scales{given.t(), recipe, lines, k};
      break;
    case Recipe::of_128:
      if (has_shape(given, lines, blocks_in(k))) return Scales{given, recipe, lines, k};
      break;
    case Recipe::of_128x128:
      for (const int64_t rows : {rounded_up(blocks_in(k)), blocks_in(k)})
        if (has_shape(given, rows, blocks_in(lines)))
          return Scales{given.narrow(0, 0, blocks_in(k)).t(), recipe, lines, k};
      break;
  }
  return std::nullopt;
}

// The recipe and scale of an operand of _scaled_mm_v2; none if there are several, or swizzled ones.
std::optional<Scales> named_scales(const at::IValue& given, const at::IValue& recipes,
                                   const at::IValue& swizzles, int64_t lines, int64_t k) {
  const auto scales = given.toTensorVector();
  const auto recipe = recipes.toIntVector(), swizzle = swizzles.toIntVector();
  if (scales.size() != 1 || recipe.size() != 1) return std::nullopt;
  for (const int64_t kind : swizzle)
    if (kind != 0) return std::nullopt;
  return scales_by_name(scales[0], Recipe(recipe[0]), lines, k);
}

}  // namespace

torch_ops::Blocks Scales::blocks() const {
  switch (recipe) {
    case Recipe::tensor:
      return {0, 0};
    case Recipe::row:
      return {1, 0};
    case Recipe::of_128:
      return {1, kBlock};
    case Recipe::of_128x128:
      return {kBlock, kBlock};
  }
  return {};
}

bool Scales::are_in_torchs_order(bool on_gpu) const {
  const int64_t pitch = grid.stride(0), along_k = grid.stride(1);
  switch (recipe) {
    case Recipe::tensor:
      return true;
    case Recipe::row:
      return lines == 1 || pitch == 1;
    // Lines of scales begin at multiples of 16 bytes.
    case Recipe::of_128:
      return on_gpu && lines % 4 == 0 && pitch == 1 && (grid.size(1) == 1 || along_k == lines);
    case Recipe::of_128x128:
      return on_gpu && (grid.size(1) == 1 || along_k == 1) && pitch % 4 == 0 && pitch >= grid.size(1);
  }
  return false;
}

std::optional<BothScales> scales_at(const Product& op, Arguments arguments) {
  const at::Tensor &a = tensor_at(arguments, op.a), &b = tensor_at(arguments, op.b);
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const auto at = [&](int i) -> const at::IValue& { return arguments[size_t(i)]; };
  std::optional<Scales> of_a, of_b;
  if (op.recipe_a >= 0) {
    of_a = named_scales(at(op.scale_a), at(op.recipe_a), at(op.swizzle_a), m, k);
    of_b = named_scales(at(op.scale_b), at(op.recipe_b), at(op.swizzle_b), n, k);
  } else {
    const at::Tensor &scale_a = tensor_at(arguments, op.scale_a), &scale_b = tensor_at(arguments, op.scale_b);
    of_a = scales_by_shape(scale_a, m, k);
    of_b = scales_by_shape(scale_b.dim() == 2 ? scale_b.t() : scale_b, n, k);
  }
  if (!of_a || !of_b) return std::nullopt;
  for (const at::Tensor* const grid : {&of_a->grid, &of_b->grid})
    if (grid->scalar_type() != at::kFloat || grid->device() != a.device() || why_not_memory(*grid))
      return std::nullopt;
  // The only scale of a single row is that of the whole if the other one is.
  const bool ones = of_a->grid.numel() == 1 && of_b->grid.numel() == 1;
  if (op.recipe_a < 0 && ones) of_a->recipe = of_b->recipe = Recipe::tensor;
  return BothScales{std::move(*of_a), std::move(*of_b)};
}

}  // namespace fastgemm::override
