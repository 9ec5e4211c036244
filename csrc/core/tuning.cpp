#include "core/tuning.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "core/cpu_features.h"
#include "cuda/available.h"

namespace fastgemm {
namespace {

struct KeyHash {
  size_t operator()(const TuningKey& k) const {
    uint64_t h = 0xcbf29ce484222325u;
    const auto mix = [&h](uint64_t v) {
      h = (h ^ v) * 0x100000001b3u;
      h ^= h >> 29;
    };
    mix(uint64_t(k.op) | uint64_t(k.device) << 4 | uint64_t(k.type) << 8 | uint64_t(k.out_type) << 12 |
        uint64_t(k.precision) << 16 | uint64_t(k.a_transposed) << 20 | uint64_t(k.b_transposed) << 21 |
        uint64_t(k.accumulates) << 22 | uint64_t(k.threads) << 32);
    mix(k.gpu), mix(uint64_t(k.batch)), mix(uint64_t(k.m)), mix(uint64_t(k.n)), mix(uint64_t(k.k));
    return h;
  }
};

struct Memory {
  std::shared_mutex mutex;
  std::unordered_map<TuningKey, const Kernel*, KeyHash> kernels;
};
Memory& memory() {
  static Memory m;
  return m;
}
std::atomic<uint64_t> version{1};

constexpr std::string_view kFramework = "torch";

std::mutex probe_mutex;
FrameworkProbe framework_probe;

const Kernel* find_row(Op op, Device device, std::string_view name) {
  for (const Kernel& k : kernels())
    if (k.op == op && k.device == device && k.name == name) return &k;
  return nullptr;
}

// log2(n) up to a constant, linear between powers of two: the bits of a float, read as a number. A decision
// looks at hundreds of sizes, and std::log2 would take 10 us for them.
float log_size(int64_t n) { return float(std::bit_cast<uint32_t>(float(n < 1 ? 1 : n))) * 0x1p-23f; }

// Tables are measured with one thread and with all; a point of the same kind of thread count is meant.
bool same_threads(const TuningKey& key, const Measured& p) {
  return key.device == Device::cuda || (key.threads == 1) == (p.threads == 1);
}

bool same_layout(const TuningKey& key, const Measured& p) {
  return key.a_transposed == p.a_transposed && key.b_transposed == p.b_transposed;
}
bool same_size(const TuningKey& key, const Measured& p) {
  return key.batch == p.batch && key.m == p.m && key.n == p.n && key.k == p.k;
}

// Squared distance in octaves. Batch counts half: four times the batch is like twice the size. Another layout
// is like another quarter octave, so that points of the same layout come first.
float distance(const TuningKey& key, const Measured& p) {
  const auto d = [](int64_t x, int64_t y) {
    const float v = log_size(x) - log_size(y);
    return v * v;
  };
  constexpr float kOtherLayout = 0.0625f;
  return d(key.m, p.m) + d(key.n, p.n) + d(key.k, p.k) + 0.25f * d(key.batch, p.batch) +
         (key.device == Device::cuda && !same_layout(key, p) ? kOtherLayout : 0.0f);
}

// The points of one device's table nearest to a key, nearest first.
constexpr size_t kNeighbours = 5;
using Neighbours = std::array<const Measured*, kNeighbours>;
Neighbours neighbours(const TuningKey& key, std::string_view device) {
  Neighbours found{};
  std::array<float, kNeighbours> distances;
  distances.fill(std::numeric_limits<float>::infinity());
  for (const StaticTable& table : static_tables()) {
    if (table.op != key.op || table.device != device) continue;
    for (const Measured& p : table.points) {
      if (p.type != key.type || p.precision != key.precision || !same_threads(key, p)) continue;
      float d = distance(key, p);
      const Measured* point = &p;
      for (size_t i = 0; i < kNeighbours && point; ++i)
        if (d < distances[i]) std::swap(d, distances[i]), std::swap(point, found[i]);
    }
  }
  return found;
}

void set_device(TuningKey& k, Device device, int threads) {
  k.device = device;
  k.threads = threads;
  k.gpu = device == Device::cuda ? cuda::device_number() : 0;
}

}  // namespace

uint64_t gpu_number(std::string_view name) {
  if (name.empty()) return 0;
  uint64_t h = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) h = (h ^ uint8_t(c)) * 0x100000001b3u;
  return h;
}

TuningKey tuning_key(const GemmProblem& p, Device device, int threads) {
  TuningKey k;
  k.op = Op::gemm, k.type = p.type, k.out_type = p.out_type, k.precision = p.precision;
  set_device(k, device, threads);
  k.a_transposed = p.a.col_stride != 1 && p.a.row_stride == 1;
  k.b_transposed = p.b.col_stride != 1 && p.b.row_stride == 1;
  k.accumulates = p.alpha != 1.0 || p.beta != 0.0;
  k.batch = p.batch, k.m = p.m, k.n = p.n, k.k = p.k;
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

const std::string& cpu_model() {
  static const std::string name = [] {
    const CpuFeatures& f = cpu_features();
    std::string features = f.list();
    for (char& c : features) c = c == ' ' ? '+' : c;
    return f.vendor + "-" + std::to_string(f.family) + "-" + std::to_string(f.model) + "-" + features;
  }();
  return name;
}

const Kernel* nearest_measured(const TuningKey& key) {
  const bool gpu = key.device == Device::cuda;
  const Neighbours near = neighbours(key, gpu ? std::string_view(cuda::device_name()) : cpu_model());
  if (!near[0]) return nullptr;  // not on this processor, or not in this precision
  const Kernel* best = find_row(key.op, key.device, near[0]->kernel);
  if (!gpu || !best) return best;
  if (same_size(key, *near[0]) && (same_layout(key, *near[0]) || near[0]->clearly)) return best;
  const auto agrees = [](const Measured* p) { return !p || (p->clearly && p->kernel != kFramework); };
  return std::all_of(near.begin(), near.end(), agrees) ? best : find_row(key.op, key.device, kFramework);
}

void remember(const TuningKey& key, std::string_view kernel) {
  const Kernel* row = find_row(key.op, key.device, kernel);
  if (!row) return;  // a file written by another version may name a kernel that is gone
  std::unique_lock lock(memory().mutex);
  memory().kernels[key] = row;
  ++version;
}

const Kernel* remembered(const TuningKey& key) {
  std::shared_lock lock(memory().mutex);
  const auto it = memory().kernels.find(key);
  return it == memory().kernels.end() ? nullptr : it->second;
}

size_t remembered_count() {
  std::shared_lock lock(memory().mutex);
  return memory().kernels.size();
}

void forget_all() {
  std::unique_lock lock(memory().mutex);
  memory().kernels.clear();
  ++version;
}

uint64_t tuning_version() { return version.load(std::memory_order_acquire); }

void set_framework_probe(FrameworkProbe probe) {
  std::lock_guard lock(probe_mutex);
  framework_probe = std::move(probe);
}

bool framework_computes(Device device, DType type, Precision precision) {
  FrameworkProbe probe;
  {
    std::lock_guard lock(probe_mutex);
    probe = framework_probe;
  }
  return probe ? probe(device, type, precision) : precision == Precision::ieee;
}

}  // namespace fastgemm
