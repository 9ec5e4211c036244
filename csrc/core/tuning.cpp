#include "core/tuning.h"

#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "core/cpu.h"
#include "core/nearest.h"

namespace fastgemm {
namespace {

struct Memory {
  std::shared_mutex mutex;
  std::unordered_map<TuningKey, const Kernel*, TuningKeyHash> kernels, exact;
};
Memory& memory() {
  static Memory m;
  return m;
}
std::atomic<uint64_t> version{1};

std::atomic<FrameworkProbe> framework_probe{nullptr};

const Kernel* find_row(Op op, Device device, std::string_view name) {
  for (const Kernel& k : kernels())
    if (k.op == op && k.device == device && k.name == name) return &k;
  return nullptr;
}

// Whether a matrix of rows x cols elements can be read by 16-byte accesses and by TMA: every line starts at a
// multiple of 16 bytes. A line is a contiguous row or column.
constexpr int64_t kAligned = 16;
template <class Pointer>
bool aligned(const BasicMatrix<Pointer>& x, DType type, int64_t batch, int64_t rows, int64_t cols) {
  const int size = element_size(type);
  const bool by_rows = x.col_stride == 1 && !(x.row_stride == 1 && cols == 1);  // one column is one line
  const int64_t lines = by_rows ? rows : cols;
  const int64_t pitch = by_rows ? x.row_stride : x.row_stride == 1 ? x.col_stride : 1;
  return (lines <= 1 || pitch * size % kAligned == 0) &&
         (batch <= 1 || x.batch_stride * size % kAligned == 0) &&
         reinterpret_cast<uintptr_t>(x.data) % kAligned == 0;
}

// The row of the kernel table for a name in a static table; null if this build has no kernel of that name.
const Kernel* row_of(const StaticTable& table, uint8_t name) {
  static const auto rows = [] {
    std::vector<std::vector<const Kernel*>> all;
    for (const StaticTable& t : static_tables()) {
      auto& found = all.emplace_back();
      for (const std::string_view kernel : t.kernels)
        found.push_back(find_row(t.op, t.on_gpu() ? Device::cuda : Device::cpu, kernel));
    }
    return all;
  }();
  return rows[size_t(&table - static_tables().data())][name];
}

void set_device(TuningKey& k, Device device, int threads) {
  k.device = device;
  k.threads = threads;
  k.gpu = device == Device::cuda ? current_gpu_number() : 0;
}

}  // namespace

size_t TuningKeyHash::operator()(const TuningKey& k) const {
  uint64_t h = 0xcbf29ce484222325u;
  const auto mix = [&h](uint64_t v) {
    h = (h ^ v) * 0x100000001b3u;
    h ^= h >> 29;
  };
  mix(uint64_t(k.op) | uint64_t(k.device) << 4 | uint64_t(k.type) << 8 | uint64_t(k.out_type) << 12 |
      uint64_t(k.precision) << 16 | uint64_t(k.a_transposed) << 20 | uint64_t(k.b_transposed) << 21 |
      uint64_t(k.accumulates) << 22 | uint64_t(k.alignment.inputs) << 23 | uint64_t(k.alignment.out) << 24 |
      uint64_t(k.adds_row) << 25 | uint64_t(k.symmetry.known) << 26 | uint64_t(k.symmetry.parts) << 27 |
      uint64_t(k.symmetry.conjugated) << 30 | uint64_t(k.epilogue) << 31 | uint64_t(k.threads) << 32);
  mix(uint64_t(k.code) | uint64_t(k.groups) << 4 | uint64_t(k.gated) << 6 | uint64_t(k.scales_parts) << 7 |
      uint64_t(k.group_k) << 8);
  mix(k.gpu), mix(uint64_t(k.batch)), mix(uint64_t(k.m)), mix(uint64_t(k.n)), mix(uint64_t(k.k));
  return h;
}

Alignment alignment_of(const GemmProblem& p) {
  return {aligned(p.a, p.type, p.batch, p.m, p.k) && aligned(p.b, p.type, p.batch, p.k, p.n),
          aligned(p.out, p.out_type, p.batch, p.m, p.n)};
}

TuningKey tuning_key(const GemmProblem& p, Device device, int threads) {
  TuningKey k;
  k.op = Op::gemm, k.type = p.type, k.out_type = p.out_type, k.precision = p.precision;
  set_device(k, device, threads);
  k.a_transposed = p.a.col_stride != 1 && p.a.row_stride == 1;
  k.b_transposed = p.b.col_stride != 1 && p.b.row_stride == 1;
  k.accumulates = p.alpha != 1.0 || p.beta != 0.0;
  k.adds_row = p.beta != 0.0 && p.c.row_stride == 0 && p.c.batch_stride == 0;
  k.batch = p.batch, k.m = p.m, k.n = p.n, k.k = p.k;
  k.symmetry = p.symmetry;
  k.epilogue = p.finishes();
  k.code = p.packed.code, k.group_k = p.packed.group_k, k.groups = p.groups.by, k.gated = p.gated;
  k.scales_parts = scales_parts(p);
  if (device == Device::cuda) k.alignment = alignment_of(p);
  return k;
}

TuningKey tuning_key(const TransposeProblem& p, Device device, int threads) {
  TuningKey k;
  k.op = Op::transpose, k.type = k.out_type = p.type;
  set_device(k, device, threads);
  k.a_transposed = p.src.col_stride != 1 && p.src.row_stride == 1;
  k.batch = p.batch, k.m = p.rows, k.n = p.cols, k.k = 0;
  return k;
}

TuningKey tuning_key(const AddProblem& p, Device device, int threads) {
  TuningKey k;
  k.op = Op::add, k.type = k.out_type = p.type;
  set_device(k, device, threads);
  k.m = p.rows, k.n = p.cols, k.k = 0;
  return k;
}

Alignment contiguous_alignment(const TuningKey& key) {
  if (key.op != Op::gemm || key.device != Device::cuda) return {};
  const auto rows_of = [&](int64_t rows, int64_t cols, bool transposed, DType type) {
    const ConstMatrix x{nullptr, transposed ? 1 : cols, transposed ? rows : 1, rows * cols};
    return aligned(x, type, key.batch, rows, cols);
  };
  return {
      rows_of(key.m, key.k, key.a_transposed, key.type) && rows_of(key.k, key.n, key.b_transposed, key.type),
      rows_of(key.m, key.n, false, key.out_type)};
}

const std::string& cpu_model() {
  static const std::string name = [] {
    const CpuFeatures& f = cpu_features();
    std::string features = f.list();
    for (char& c : features) c = c == ' ' ? '+' : c;
    return f.vendor + "-" + std::to_string(f.family) + "-" + std::to_string(f.model) + "-" + features;
  }();
  return name;
}

Candidates measured_candidates(const TuningKey& key) {
  Candidates found;
  if (key.code != Code::none) return found;  // the tables hold products of matrices only
  if (key.device == Device::simt) return found;
  const bool gpu = key.device == Device::cuda;
  if (const StaticTable* table =
          static_table_for(key, gpu ? std::string_view(current_gpu_name()) : current_cpu().model)) {
    const Ranking ranking = rank(*table, key);
    for (size_t i = 0; i < ranking.count; ++i)
      if (const Kernel* row = row_of(*table, ranking.kernels[i])) found.kernels[found.count++] = row;
  }
  return found;
}

namespace {
TuningKey as_remembered(TuningKey key) {
  key.alignment = {}, key.adds_row = false, key.symmetry = {};
  return key;
}
}  // namespace

void remember(const TuningKey& key, std::string_view kernel, bool exactly) {
  const Kernel* row = find_row(key.op, key.device, kernel);
  if (!row) return;  // a file of another version may name a kernel that no longer exists
  std::unique_lock lock(memory().mutex);
  if (exactly)
    memory().exact[key] = row;
  else
    memory().kernels[as_remembered(key)] = row;
  ++version;
}

const Kernel* remembered(const TuningKey& key) {
  std::shared_lock lock(memory().mutex);
  const auto& [mutex, kernels, exact] = memory();
  if (const auto it = kernels.find(as_remembered(key)); it != kernels.end()) return it->second;
  const auto it = exact.find(key);
  return it == exact.end() ? nullptr : it->second;
}

size_t remembered_count() {
  std::shared_lock lock(memory().mutex);
  return memory().kernels.size() + memory().exact.size();
}

void forget_all() {
  std::unique_lock lock(memory().mutex);
  memory().kernels.clear(), memory().exact.clear();
  ++version;
}

void tuning_changed() { ++version; }
uint64_t tuning_version() { return version.load(std::memory_order_acquire); }

void set_framework_probe(FrameworkProbe probe) { framework_probe.store(probe, std::memory_order_release); }

bool framework_computes(Device device, DType type, Precision precision) {
  const FrameworkProbe probe = framework_probe.load(std::memory_order_acquire);
  return probe ? probe(device, type, precision) : precision == Precision::ieee;
}

}  // namespace fastgemm
