// float64, float32 and int64 products from int8 tensor cores. Integers are multiplied by their residues
// modulo 8 to 19 coprime numbers, and the Chinese remainder theorem joins the residues of C to integers
// (parts/residues/moduli.h).
//
//   A, B --[measure, scale, cut]--> residues --[multiply]--> residues of C --[join]--> C
//                             |____ [survey] ____ which tiles ____|________|
//
// Each modulus costs one int8 product, and Hopper's tensor cores multiply bytes at 30 times the rate of
// float64. So 15 products and the passes around them take less time than one product in float64. Precision
// "ieee" takes 15 moduli. These are not accurate enough for some tiles (selection.cuh), and other tiles have
// elements that are not finite. `dmma` computes both kinds. The kernels choose the tiles themselves, so the
// host does not wait. "crt14" to "crt18" fix the number of moduli; then `dmma` computes only the tiles with
// rows that cannot be scaled. float32 takes 8 moduli: 8 products of bytes, where bf16x6 takes 6 products of
// elements of two bytes. bf16x6 computes the tiles for which 8 moduli are not accurate enough. Rows of int64
// are neither scaled nor judged.
//
// Sums of up to 2^17 products of residues are exact. A longer k is computed in parts, which are added up in
// C. For float32 a part has at most 2^14 values of k, which bf16x6 sums in one launch. C is computed in
// panels, so that their residues take at most 4 GiB.
#include <algorithm>
#include <tuple>

#include "cuda/available.h"
#include "cuda/gemm/parts/residues/bytes.cuh"
#include "cuda/gemm/parts/residues/cut.cuh"
#include "cuda/gemm/parts/residues/fallback.cuh"
#include "cuda/gemm/parts/residues/join.cuh"
#include "cuda/gemm/parts/residues/measure.cuh"
#include "cuda/gemm/parts/residues/reduce.cuh"
#include "cuda/gemm/parts/residues/scale.cuh"
#include "cuda/gemm/parts/residues/survey.cuh"
#include "cuda/gemm/parts/reused_workspace.cuh"
#include "cuda/gemm/parts/stores/vector_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

using namespace residues;

// The least s / (|a| |b|) (selection.cuh) for which a tile is computed by residues under "ieee". With 15
// moduli the rounding error is 2^-58.4 |a| |b|. For the least s that is allowed, this is 2^-53.8 s, about the
// error of float64 sums. With 8 moduli the error is 2^-31.5 |a| |b|. For the least s, this is 2^-26.2 s,
// about the error of float32 sums. These figures are root mean squares of independent rounding errors. Equal
// elements have equal errors: docs/precision.md says how far those add up.
template <class T>
constexpr float kIeeeBound = std::is_same_v<T, double> ? 1.0f / 24 : 1.0f / 40;

template <class T>
constexpr int64_t kMostTermsOf = std::is_same_v<T, float> ? plans::kFloat32CrtTerms : kMostTerms;

template <class T>
T* allocate(Context& context, int64_t count) {
  return static_cast<T*>(context.allocate(size_t(count) * sizeof(T)));
}

// The moduli of a product, and whether tiles are judged.
struct Plan {
  const System& system;
  bool judged;
  int triangle;       // of GemmProblem; only products of a single panel skip the other triangle
  Epilogue epilogue;  // float32 only
  int moduli() const { return system.moduli; }
};

// Panels of C, computed row of panels by row of panels. The residues of A are made once for each row of
// panels. The residues of B are made for each panel, or once if there is a single row or column of panels.
struct ResiduePanels {
  int64_t rows, columns;  // the size of a panel, whole tiles

  ResiduePanels(int64_t m, int64_t n, int64_t k, int moduli) {
    const int64_t room = most_plane_bytes(), bytes = padded_k(k) * moduli;
    rows = extent(m, kTileM, room / bytes);
    columns = extent(n, kTileN, room / (bytes + rows * moduli));
  }

 private:
  // The length of equal parts of `all` that are whole tiles of at most `most`.
  static int64_t extent(int64_t all, int64_t tile, int64_t most) {
    const int64_t tiles = ceil_div(all, tile), parts = ceil_div(tiles, std::max(most / tile, int64_t{1}));
    return ceil_div(tiles, parts) * tile;
  }
};

// Rows [first, first + count) of an operand. `norms` has those of all its rows.
template <class T>
Source<T> rows_of(const Side<T>& all, Norms* norms, int64_t first, int64_t count, int group, const Plan& plan,
                  Context& context) {
  Source<T> s{.side = all, .group = group};
  s.side.data += first * all.side_stride, s.side.side = count;
  s.takes_vectors =
      all.k_stride == 1 && takes_vectors(s.side.data, sizeof(T), all.side_stride, all.k_stride, 0);
  s.residues = allocate<int8_t>(context, plan.moduli() * count * s.padded_k());
  if (norms == nullptr) return s;
  s.norms = norms + first * ceil_div(all.k, kMeasured);
  s.scales = allocate<Scale>(context, count);
  s.useful = allocate<uint32_t>(context, s.groups());
  s.limits = allocate<Limits>(context, s.groups());
  if (plan.judged) s.shares = allocate<uint32_t>(context, count * ceil_div(all.k, kCutK));
  return s;
}

template <class T>
TensorMap residue_map(const Source<T>& s, int moduli) {
  const int64_t padded = s.padded_k();
  return make_tensor_map({s.residues, 1, padded, s.side.side, moduli, padded, padded * s.side.side, 128,
                          s.group, Swizzle::bytes128});
}

// Calls f.template operator()<triangle>().
template <class F>
void with_triangle(int triangle, F&& f) {
  triangle == 0   ? f.template operator()<0>()
  : triangle == 1 ? f.template operator()<1>()
                  : f.template operator()<2>();
}

template <class T>
void launch_multiply(const Sources<T>& sources, const Selection& selection, unsigned char* sums,
                     const System& system, int triangle, Context& context) {
  const auto& [a, b] = std::tie(sources.a, sources.b);
  MultiplyArguments arguments{.selection = selection, .sums = sums};
  arguments.tiles_m = a.groups(), arguments.tiles_n = b.groups();
  arguments.moduli = system.moduli, arguments.stages = int(ceil_div(a.side.k, 128));
  std::copy_n(system.modulus, kMostModuli, arguments.modulus);
  std::copy_n(system.reciprocal, kMostModuli, arguments.reciprocal);
  const int64_t tiles = int64_t{arguments.tiles_m} * arguments.tiles_n * system.moduli;
  const LaunchShape shape{dim3(unsigned(std::min<int64_t>(tiles, multiprocessors()))),
                          dim3(TileShape::kThreads), sizeof(TileShape::Shared)};
  with_triangle(triangle, [&]<int lower>() {
    launch<multiply_kernel<lower>>("crt", shape, context)(
        {residue_map(a, system.moduli), residue_map(b, system.moduli)}, arguments);
  });
}

// The same on GPUs without wgmma, one modulus after another.
template <class T>
void multiply_one_by_one(const Sources<T>& sources, const Selection& selection, unsigned char* sums,
                         const System& system, Context& context) {
  const auto& [a, b] = std::tie(sources.a, sources.b);
  ReusedWorkspace workspace(context);
  ReduceArguments reduce{.selection = selection, .sums = sums, .m = a.side.side, .n = b.side.side};
  reduce.tiles_n = b.groups(), reduce.moduli = system.moduli;
  const int64_t padded = a.padded_k(), blocks = int64_t{a.groups()} * b.groups() * kParts;
  auto* const products = allocate<int32_t>(context, reduce.m * reduce.n);
  reduce.products = products;
  GemmProblem p{.type = DType::i8, .out_type = DType::i32, .m = reduce.m, .n = reduce.n, .k = padded};
  p.out = {products, reduce.n, 1, 0};
  for (int i = 0; i < system.moduli; ++i) {
    workspace.begin_again();
    p.a = {a.residues + i * reduce.m * padded, padded, 1, 0};
    p.b = {b.residues + i * reduce.n * padded, 1, padded, 0};
    multiply_bytes(gemm_of<int8_t>(p), workspace);
    reduce.index = i, reduce.reduction = {system.modulus[i], system.reciprocal[i]};
    launch<reduce_kernel>("reduce_residues", {dim3(unsigned(blocks)), dim3(kSumThreads)}, context)(reduce);
  }
}

JoinedFloats::Constants constants_of(const System& system, const Sources<float>& sources) {
  JoinedFloats::Constants c;
  std::copy_n(system.low_weight, system.moduli, c.weight);
  std::copy_n(system.share, system.moduli, c.share);
  c.product = system.low_product;
  c.scales_a = sources.a.scales, c.scales_b = sources.b.scales;
  return c;
}
JoinedDoubles::Constants constants_of(const System& system, const Sources<double>& sources) {
  JoinedDoubles::Constants c;
  std::copy_n(system.weight, kMostModuli, c.weight);
  c.product = system.product, c.inverse_product = system.inverse_product;
  c.scales_a = sources.a.scales, c.scales_b = sources.b.scales;
  return c;
}
JoinedIntegers::Constants constants_of(const System& system, const Sources<int64_t>&) {
  JoinedIntegers::Constants c;
  std::copy_n(system.low_weight, kMostModuli, c.weight);
  std::copy_n(system.share, kMostModuli, c.share);
  c.product = system.low_product;
  return c;
}

template <class T>
bool stores_pairs(const Result<T>& r) {
  return is_aligned(r.out, 2 * sizeof(T)) && r.row_stride % 2 == 0;
}

template <class T>
void launch_join(const Gemm<T>& g, const Sources<T>& sources, const Selection& selection,
                 const unsigned char* sums, const System& system, int triangle, const Epilogue& epilogue,
                 Context& context) {
  const int64_t blocks = int64_t{sources.a.groups()} * sources.b.groups() * kParts;
  const LaunchShape shape{dim3(unsigned(blocks)), dim3(kSumThreads)};
  const JoinArguments<T> arguments{g,
                                   selection,
                                   sums,
                                   sources.b.groups(),
                                   system.moduli,
                                   stores_pairs(g.result),
                                   constants_of(system, sources)};
  if constexpr (std::is_same_v<T, float>) {
    if (epilogue.asked())
      return launch<join_kernel<T, 0, Epilogue>>("join_residues", shape, context)(arguments, epilogue);
  }
  with_triangle(triangle, [&]<int lower>() {
    launch<join_kernel<T, lower, NoEpilogue>>("join_residues", shape, context)(arguments, {});
  });
}

// The norms of all rows. Null for integers, which are not scaled.
struct AllNorms {
  Norms *a = nullptr, *b = nullptr;
};
template <class T>
AllNorms launch_measure(const Gemm<T>& g, Context& context) {
  Sources<T> all{.a = {.side = side_a(g, 1)}, .b = {.side = side_b(g, 1)}};
  for (Source<T>* s : {&all.a, &all.b})
    s->norms = allocate<Norms>(context, s->side.side * ceil_div(s->side.k, kMeasured));
  all.blocks_a = blocks_of(all.a, kMeasured);
  const int blocks = all.blocks_a + blocks_of(all.b, kMeasured);
  launch<measure_kernel<T>>("measure", {dim3(unsigned(blocks)), dim3(kThreads)}, context)(all);
  return {all.a.norms, all.b.norms};
}
AllNorms launch_measure(const Gemm<int64_t>&, Context&) { return {}; }

// Which operands are cut for a panel. The other operand keeps the residues of the panel before.
struct Cuts {
  bool a, b;
};

template <class T, bool judged, int words>
void launch_cut(Sources<T> sources, Cuts cuts, const System& system, Context& context) {
  sources.all = !cuda::has_wgmma();
  sources.blocks_a = cuts.a ? blocks_of(sources.a, kCutK) : 0;
  const int blocks = sources.blocks_a + (cuts.b ? blocks_of(sources.b, kCutK) : 0);
  launch<cut_kernel<T, judged, words>>("cut_residues", {dim3(unsigned(blocks)), dim3(kThreads)}, context)(
      sources, system);
}

// Scales the rows and cuts them. Returns which tiles the residues are accurate enough for.
template <class T>
Selection cut(const Sources<T>& sources, Cuts cuts, const Plan& plan, Context& context) {
  const LaunchShape by_group{dim3(unsigned(sources.a.groups() + sources.b.groups())), dim3(kTileN)};
  const float bound = plan.judged ? kIeeeBound<T> : 0;
  launch<scale_kernel<T>>("scale", by_group, context)(sources, plan.system.norm_squared, bound);
  if constexpr (std::is_same_v<T, float>)
    launch_cut<T, true, words_of(plans::kFloat32Moduli)>(sources, cuts, plan.system, context);
  else if (plan.judged)
    launch_cut<T, true, words_of(plans::kIeeeModuli)>(sources, cuts, plan.system, context);
  else if (words_of(plan.moduli()) == 2)
    launch_cut<T, false, 2>(sources, cuts, plan.system, context);
  else
    launch_cut<T, false, 3>(sources, cuts, plan.system, context);
  launch<survey_kernel<T>>("survey", by_group, context)(sources);
  return {sources.a.limits, sources.b.limits, float(sources.a.side.k), bound};
}
Selection cut(const Sources<int64_t>& sources, Cuts cuts, const Plan& plan, Context& context) {
  launch_cut<int64_t, false, 2>(sources, cuts, plan.system, context);
  return {};
}

// Workspace that is kept for a whole product, and workspace that each panel uses again.
struct Workspaces {
  ReusedWorkspace product, panel;
};

// The panel of C that begins at (row, column).
template <class T>
Gemm<T> panel_of(const Gemm<T>& all, int64_t row, int64_t column, const ResiduePanels& panels) {
  Gemm<T> g = all;
  g.m = std::min(panels.rows, all.m - row), g.n = std::min(panels.columns, all.n - column);
  g.a.data += row * all.a.row_stride, g.b.data += column * all.b.col_stride;
  Result<T>& r = g.result;
  r.out = static_cast<T*>(r.out) + row * r.row_stride + column;
  if (r.c) r.c = static_cast<const T*>(r.c) + row * r.c_row_stride + column * r.c_col_stride;
  return g;
}

// A product of up to kMostTermsOf<T> terms.
template <class T>
void multiply_terms(const Gemm<T>& g, const Plan& plan, Workspaces& workspaces) {
  ReusedWorkspace& workspace = workspaces.panel;
  const ResiduePanels panels(g.m, g.n, g.k, plan.moduli());
  workspaces.product.begin_again();
  const AllNorms norms = launch_measure(g, workspaces.product);
  const int triangle = panels.rows >= g.m && panels.columns >= g.n ? plan.triangle : 0;
  for (int64_t row = 0; row < g.m; row += panels.rows)
    for (int64_t column = 0; column < g.n; column += panels.columns) {
      workspace.begin_again();
      const Gemm<T> panel = panel_of(g, row, column, panels);
      Sources<T> sources{rows_of(side_a(g, 1), norms.a, row, panel.m, kTileM, plan, workspace),
                         rows_of(side_b(g, 1), norms.b, column, panel.n, kTileN, plan, workspace)};
      sources.a.reused = panels.columns < g.n, sources.b.reused = !sources.a.reused && panels.rows < g.m;
      const int64_t tiles = int64_t{sources.a.groups()} * sources.b.groups();
      auto* const sums = allocate<unsigned char>(workspace, tiles * plan.moduli() * kTileBytes);
      const Cuts cuts{column == 0, row == 0 || panels.columns < g.n};
      const Selection selection = cut(sources, cuts, plan, workspace);
      cuda::has_wgmma() ? launch_multiply(sources, selection, sums, plan.system, triangle, workspace)
                        : multiply_one_by_one(sources, selection, sums, plan.system, workspace);
      // Before the join, because this allocates. An allocation may fail only while nothing of the first panel
      // is written: c may share the result's memory.
      const Epilogue epilogue = plan.epilogue.at<T>(row, column);
      if constexpr (std::is_floating_point_v<T>) multiply_fallback(panel, selection, epilogue, workspace);
      launch_join(panel, sources, selection, sums, plan.system, triangle, epilogue, workspace);
    }
}

template <class T>
void multiply_matrix(const Gemm<T>& all, const Plan& plan, Workspaces& workspaces) {
  for (int64_t k = 0, length; k < all.k; k += length) {
    // Parts have about the same length, so that none is too short for bf16x6.
    const int64_t left = all.k - k, parts = ceil_div(left, kMostTermsOf<T>);
    length = parts == 1 ? left : padded_k(ceil_div(left, parts));
    Gemm<T> g = all;
    g.k = length;
    g.a.data += k * all.a.col_stride, g.b.data += k * all.b.row_stride;
    if (k > 0) {
      Result<T>& r = g.result;
      r.c = r.out, r.c_row_stride = r.row_stride, r.c_col_stride = 1, r.beta = 1;
    }
    multiply_terms(g, plan, workspaces);
  }
}

}  // namespace

void gemm_crt(const GemmProblem& problem, Context& context) {
  const int moduli = plans::crt_moduli(problem);
  const bool of_integers = problem.type == DType::i64, of_float32 = problem.type == DType::f32;
  const bool judged = of_float32 || (!of_integers && problem.precision == Precision::ieee);
  const Plan plan{of_float32    ? kFloat32System
                  : of_integers ? kInt64Systems[moduli - 18]
                                : kSystems[moduli - 14],
                  judged, problem.triangle, problem.epilogue};
  Workspaces workspaces{ReusedWorkspace(context), ReusedWorkspace(context)};
  run_gemm<double, float, int64_t>(problem, context, [&](const auto& g, int batch) {
    for (int i = 0; i < batch; ++i) multiply_matrix(g.at_batch(i), plan, workspaces);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
