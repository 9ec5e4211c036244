#include <atomic>
#include <map>
#include <mutex>

#include "core/passes.h"
#include "core/simulator.h"
#include "core/tuning.h"

namespace fastgemm {
namespace {

std::atomic<const std::vector<Kernel>*> installed = nullptr;
Passes passes;

// The table with a module's rows. It is never freed, because plans and decisions of any thread point to rows.
const std::vector<Kernel>& table_of(std::span<const Kernel> rows) {
  static std::mutex mutex;
  static std::map<const Kernel*, std::vector<Kernel>> tables;
  const std::lock_guard lock(mutex);
  const auto [it, is_new] = tables.try_emplace(rows.data(), rows.begin(), rows.end());
  if (is_new)
    for (const Kernel& k : strategies_for(Device::simt)) it->second.push_back(k);
  return it->second;
}

}  // namespace

void install_simulator(std::span<const Kernel> rows, const Passes& given) {
  installed.store(&table_of(rows), std::memory_order_release), passes = given;
  tuning_changed();  // because plans and decisions were made with other rows
}
std::span<const Kernel> simulated_kernels() {
  const std::vector<Kernel>* const table = installed.load(std::memory_order_acquire);
  return table ? std::span<const Kernel>(*table) : std::span<const Kernel>();
}

const Passes& passes_of(Device device) {
  return device == Device::cpu ? cpu_passes() : device == Device::cuda ? cuda_passes() : passes;
}

}  // namespace fastgemm
