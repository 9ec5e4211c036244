#include "simt/rows.h"

#include <algorithm>
#include <mutex>

#include "core/names.h"
#include "core/packed_weight.h"
#include "cuda/add/levels.h"
#include "cuda/available.h"
#include "cuda/gemm/launchers.h"
#include "cuda/transpose/levels.h"
#include "simt/memory.h"

namespace fastgemm::simt {
namespace {

// Adds a matrix as a buffer, from its first to its last element.
void add(const char* name, const ConstMatrix& x, DType type, int64_t batch, int64_t rows, int64_t cols,
         bool writable = false, bool initialized = true) {
  if (!x.data || batch * rows * cols == 0) return;
  const int64_t last = (batch - 1) * x.batch_stride + (rows - 1) * x.row_stride + (cols - 1) * x.col_stride;
  memory::add_global(x.data, size_t((last + 1) * element_size(type)), name, writable, initialized);
}
void add_result(const Matrix& x, DType type, int64_t batch, int64_t rows, int64_t cols,
                const char* name = "out") {
  const ConstMatrix out{x.data, x.row_stride, x.col_stride, x.batch_stride};
  add(name, out, type, batch, rows, cols, true, false);
}

void add_bias(const Epilogue& e, DType type, int64_t rows, int64_t cols) {
  add("bias", {e.bias, e.bias_row_stride, e.bias_col_stride, 0}, type, 1, rows, cols);
}

// The scales of matrices (rows, cols).
void add(const char* name, const BlockScales& s, int64_t batch, int64_t rows, int64_t cols) {
  add(name, {s.data, s.row_stride, s.col_stride, s.group_stride},
      s.type == ScaleType::f32 ? DType::bits32 : DType::bits8, batch, packed::blocks(rows, s.block_rows),
      packed::blocks(cols, s.block_cols));
}

void add_bytes(const char* name, const void* data, int64_t bytes) {
  if (data && bytes > 0) memory::add_global(data, size_t(bytes), name, false, true);
}
// A packed weight (n, k) in units.
void add_weight(const PackedWeight& w, const void* codes, int64_t n, int64_t k) {
  const int64_t units = packed::blocks(n, packed::kRows) * packed::blocks(k, packed::kColumns);
  add_bytes("codes", codes, units * packed::unit_bytes(w, k));
  add_bytes("scales", w.scales, n * size_of(w.scale)), add_bytes("zeros", w.zeros, n * packed::zero_size(w));
  add_bytes("global_scale", w.global, int64_t(sizeof(float)));
}

void add_buffers(const GemmProblem& p) {
  const int64_t columns_of_b = p.gated ? 2 * p.n : p.n;
  const bool rows_grouped = p.groups.by == GroupedBy::m;  // a and out are one matrix, whatever the batch
  const int64_t matrices = rows_grouped ? 1 : p.batch;
  add("a", p.a, p.type, matrices, p.groups.rows ? p.groups.rows_of_a : p.m, p.k);
  add_bytes("rows", p.groups.rows, p.groups.rows ? p.m * int64_t(sizeof(int32_t)) : 0);
  if (p.packed.is_given())
    add_weight(p.packed, p.b.data, p.n, p.k);
  else
    add("b", p.b, p.type, p.batch, p.k, columns_of_b);
  add_bytes("ends", p.groups.ends, p.batch * int64_t(sizeof(int32_t)));
  if (is_fp8(p.type)) add("scales", p.scales_a, 1, p.m, p.k), add("scales", p.scales_b, p.batch, p.k, p.n);
  add("c", p.c, p.out_type, p.batch, p.m, columns_of_b);
  add_bias(p.epilogue, p.out_type, p.m, p.n);
  add_result(p.out, p.out_type, matrices, p.m, p.n);
}
void add_buffers(const TransposeProblem& p) {
  add("a", p.src, p.type, p.batch, p.rows, p.cols);
  add_result(p.dst, p.type, p.batch, p.cols, p.rows);
}
void add_buffers(const AddProblem& p) {
  add("a", p.a, p.type, 1, p.rows, p.cols), add("b", p.b, p.type, 1, p.rows, p.cols);
  add_result(p.out, p.type, 1, p.rows, p.cols);
}

void add_buffers(const DoubledRows& d) {
  const auto type = DType(int(DType::bits32) + (d.part_bytes == 8) - (d.part_bytes == 2));
  const auto complex = DType(int(type) + 1);  // twice as wide
  add("b", d.src, complex, d.batch, d.rows, d.cols);
  add_result(d.dst, complex, d.batch, 2 * d.rows, d.cols);
}

void add_buffers(const Mirror& m) {
  const int bytes = m.conjugated ? m.bytes / 2 : m.bytes;
  const auto type = DType(int(DType::bits8) + (bytes > 1) + (bytes > 2) + (bytes > 4) + (bytes > 8));
  const int64_t parts = m.bytes / bytes;
  const ConstMatrix out{m.out.data, m.out.row_stride * parts, 1, m.out.batch_stride * parts};
  add("out", out, type, m.batch, m.n, m.n * parts, true, true);
}

void add_buffers(const EpiloguePass& f) {
  const bool in_place = f.sums.data == f.out.data;
  if (!in_place) add("sums", f.sums, f.sum_type, f.batch, f.m, f.n);
  add("c", f.c, f.out_type, f.batch, f.m, f.n);
  add_bias(f.epilogue, f.out_type, f.m, f.n);
  add("row_scales", {f.scales.rows.data, f.scales.rows.stride, 0, 0}, DType::f32, 1, f.m, 1);
  add("column_scales", {f.scales.columns.data, 0, f.scales.columns.stride, 0}, DType::f32, 1, 1, f.n);
  const ConstMatrix out{f.out.data, f.out.row_stride, f.out.col_stride, f.out.batch_stride};
  add("out", out, f.out_type, f.batch, f.m, f.n, true, in_place);
}

void add_buffers(const Dequantize& d) {
  add_weight(d.packed, d.codes, d.n, d.k);
  add_result(d.out, d.type, 1, d.n, d.k);
}

void add_buffers(const WidenFp8& g) {
  add("codes", {g.codes, g.row_stride, 1, 0}, DType::bits8, 1, g.rows, g.cols);
  add("scales", g.scales, 1, g.rows, g.cols);
  add_result({g.out, g.out_row_stride, 1, 0}, g.type, 1, g.rows, g.cols);
}

void add_buffers(const QuantizeFp8& g) {
  add("x", {g.x, g.row_stride, 1, 0}, g.type, 1, g.rows, g.gated ? 2 * g.cols : g.cols);
  add("residual", {g.residual, g.residual_row_stride, 1, 0}, g.type, 1, g.rows, g.cols);
  add("scales", {g.scales, g.scale_cols(), 1, 0}, g.scale == ScaleType::f32 ? DType::bits32 : DType::bits8, 1,
      g.scale_rows(), g.scale_cols(), !g.scale_is_given, g.scale_is_given);
  add_result({g.codes, g.cols, 1, 0}, DType::bits8, 1, g.rows, g.cols);
  if (g.codes_t == nullptr) return;
  const QuantizeFp8 t = g.transposed(nullptr);
  add_result({t.scales, t.scale_cols(), 1, 0}, t.scale == ScaleType::f32 ? DType::bits32 : DType::bits8, 1,
             t.scale_rows(), t.scale_cols(), "scales_t");
  add_result({t.codes, t.cols, 1, 0}, DType::bits8, 1, t.rows, t.cols, "codes_t");
}

void add_result(const char* name, int32_t* data, int64_t count) {
  add_result({data, count, 1, 0}, DType::bits32, 1, 1, count, name);
}
void add_buffers(const RouteTokens& g) {
  add("ids", {g.ids, g.token_stride, g.chosen_stride, 0}, g.wide ? DType::i64 : DType::i32, 1, g.tokens,
      g.chosen);
  add_result("order", g.order, g.pairs()), add_result("rows", g.rows, g.pairs());
  add_result("places", g.places, g.pairs()), add_result("ends", g.ends, g.experts);
}

// All but the result, which may be missing.
void add_operands(const CombineRows& g) {
  const int64_t pairs = g.tokens * g.chosen;
  add("y", {g.y, g.row_stride, 1, 0}, g.type, 1, pairs, g.columns);
  add_bytes("places", g.places, pairs * int64_t(sizeof(int32_t)));
  add_bytes("weights", g.weights.data, pairs * element_size(g.weights.type));
}
void add_buffers(const CombineRows& g) {
  add_operands(g);
  add_result({g.out, g.columns, 1, 0}, g.type, 1, g.tokens, g.columns);
}
void add_buffers(const CombineGradients& g) {
  const CombineRows& f = g.forward;
  add_operands(f);
  add("grad", {g.grad, g.grad_stride, 1, 0}, f.type, 1, f.tokens, f.columns);
  add_result({f.out, f.columns, 1, 0}, f.type, 1, f.tokens * f.chosen, f.columns);
  add_result({g.of_weights.data, f.chosen, 1, 0}, g.of_weights.type, 1, f.tokens, f.chosen, "of_weights");
}

// Memory that a launcher allocates is uninitialized global memory.
class SimulatedContext final : public Context {
 public:
  explicit SimulatedContext(Context& host) : host_(host) {}
  void* allocate(size_t bytes) override {
    void* data = host_.allocate(bytes);
    memory::add_global(data, bytes, "workspace", true, false);
    return data;
  }
  void callers_gemm(const GemmProblem& p) override { host_.callers_gemm(p); }
  void callers_transpose(const TransposeProblem& p) override { host_.callers_transpose(p); }

 private:
  Context& host_;
};

template <auto launcher>
std::string_view name_of_row;

// Only one thread at a time may run this, because the launcher's host code is instrumented like its kernels.
template <auto launcher, class Problem>
void simulate(const Problem& problem, Context& host) {
  const std::lock_guard lock(runtime::one_at_a_time());
  runtime::refuse_within_launch(std::string(name_of_row<launcher>).c_str());
  struct Buffers {
    explicit Buffers(const Problem& p) { add_buffers(p); }
    ~Buffers() { memory::remove_all_global(); }
  } buffers(problem);
  SimulatedContext context(host);
  session().row = name_of_row<launcher>;
  launcher(problem, context);
}

template <auto launcher>
void set_launcher(Kernel& k, void (*)(const GemmProblem&, Context&)) {
  k.gemm = simulate<launcher, GemmProblem>;
}
template <auto launcher>
void set_launcher(Kernel& k, void (*)(const TransposeProblem&, Context&)) {
  k.transpose = simulate<launcher, TransposeProblem>;
}
template <auto launcher>
void set_launcher(Kernel& k, void (*)(const AddProblem&, Context&)) {
  k.add = simulate<launcher, AddProblem>;
}

// The row for a launcher that is not in the table. It runs by name only, and checks nothing about the
// problem.
Kernel without_row(Op op, std::string_view name) {
  const DTypeSet types = op == Op::transpose ? kTransposeTypes : kGemmTypes;
  return {.op = op, .level = 0, .name = name, .dtypes = types, .role = Role::companion};
}

const char* without_wgmma() {
  return cuda::has_wgmma() ? nullptr
                           : "it needs wgmma, and the simulated GPU does not have compute capability 9.0";
}

template <auto launcher>
Kernel row(Op op, std::string_view launcher_name, std::span<const Kernel> table) {
  const std::string_view name = launcher_name.substr(to_string(op).size() + 1);
  const auto found = std::ranges::find(table, name, &Kernel::name);
  Kernel k = found != table.end() ? *found : without_row(op, name);
  k.device = Device::simt, k.unavailable = k.needs == "sm_90a" ? without_wgmma : nullptr;
  k.gemm = nullptr, k.transpose = nullptr, k.add = nullptr;
  set_launcher<launcher>(k, launcher);
  name_of_row<launcher> = k.name;
  return k;
}

}  // namespace

std::vector<Kernel> rows() {
  std::vector<Kernel> all;
#define FASTGEMM_ROW(name, ...) \
  all.push_back(row<&gemm_##name>(Op::gemm, "gemm_" #name, cuda_gemm_kernels()));
#include "cuda/gemm/rows.def"
#define FASTGEMM_TRANSPOSE(name) all.push_back(row<&name>(Op::transpose, #name, cuda_transpose_kernels()));
#define FASTGEMM_ADD(name) all.push_back(row<&name>(Op::add, #name, cuda_add_kernels()));
  FASTGEMM_CUDA_TRANSPOSE(FASTGEMM_TRANSPOSE)
  FASTGEMM_CUDA_ADD(FASTGEMM_ADD)
  // In the order of the table: the preferred row of a level comes first.
  const auto place = [](const Kernel& k) {
    const auto table = k.op == Op::gemm        ? cuda_gemm_kernels()
                       : k.op == Op::transpose ? cuda_transpose_kernels()
                                               : cuda_add_kernels();
    return std::pair(k.op, std::ranges::find(table, k.name, &Kernel::name) - table.begin());
  };
  std::ranges::stable_sort(all, {}, place);
  return all;
}

Passes passes() {
  name_of_row<&double_rows> = "doubled_rows", name_of_row<&mirror> = "mirror";
  name_of_row<&run_epilogue_pass> = "finish", name_of_row<&run_dequantize> = "dequantize";
  name_of_row<&run_widen_fp8> = "widen_fp8", name_of_row<&run_quantize_fp8> = "quantize_fp8";
  name_of_row<&route_tokens> = "route_tokens", name_of_row<&combine_rows> = "combine_rows";
  name_of_row<&combine_gradients> = "combine_gradients";
  return {simulate<&double_rows, DoubledRows>,
          simulate<&mirror, Mirror>,
          simulate<&run_epilogue_pass, EpiloguePass>,
          simulate<&run_dequantize, Dequantize>,
          simulate<&run_widen_fp8, WidenFp8>,
          simulate<&run_quantize_fp8, QuantizeFp8>,
          simulate<&route_tokens, RouteTokens>,
          simulate<&combine_rows, CombineRows>,
          simulate<&combine_gradients, CombineGradients>};
}

}  // namespace fastgemm::simt
