#include "core/cpu.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "core/tuning.h"

namespace fastgemm {
namespace {

// The clock in Hz as the system states it: the driver's maximum, CPUID's maximum, or the number in the
// processor's name ("@ 2.60GHz"). Virtual machines often state none of them.
double stated_clock() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
  if (double kilohertz = 0; file >> kilohertz && kilohertz > 0) return kilohertz * 1e3;
  const CpuFeatures& f = cpu_features();
  if (f.max_megahertz > 0) return f.max_megahertz * 1e6;
  if (const size_t at = f.brand.find("@ "); at != std::string::npos)
    if (const double gigahertz = std::strtod(f.brand.c_str() + at + 2, nullptr); gigahertz > 0.5)
      return gigahertz * 1e9;
  return 3e9;
}

// How many vector multiply-adds a core starts in a cycle. With 512 bits Zen 4 takes two cycles for each of
// its two units, and Intel's processors for notebooks and desktops have only one unit. As far as possible
// they are recognized by features and caches, because hypervisors change model numbers.
double issue_of(const CpuFeatures& f) {
  const CpuFeatures& all = detected_cpu_features();
  if (f.isa() == Isa::avx512) {
    if (f.vendor == "AuthenticAMD") return f.family > 0x19 ? 2 : 1;
    if (all.amx_bf16 || all.amx_int8) return 2;
    const bool tiger_lake = f.model == 0x8c || f.model == 0x8d;
    return tiger_lake || cpu_caches().l2 < 1 << 20 ? 1 : 2;
  }
  if (f.isa() == Isa::avx2) return f.vendor == "AuthenticAMD" && f.family == 0x17 && f.model < 0x30 ? 1 : 2;
  return 1;  // no FMA: a multiplication and an addition
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return int(std::max(1u, std::thread::hardware_concurrency()));
}

Units units_of(const CpuFeatures& f) {
  return {.isa = f.isa(),
          .vnni = f.avx512_vnni,
          .dot_bf16 = f.avx512_bf16,
          .amx_bf16 = f.amx_bf16,
          .amx_int8 = f.amx_int8,
          .mmla_bf16 = f.neon_bf16,
          .mmla_int8 = f.neon_i8mm,
          .fp16 = f.avx512_fp16,
          .vector_issue = issue_of(f),
          .mkl_avx2 = f.vendor == "AuthenticAMD"};
}

Cpu detect() {
  const CpuCaches& caches = cpu_caches();
  Cpu c;
  static_cast<Units&>(c) = units_of(cpu_features());
  c.library = units_of(detected_cpu_features());
  c.model = cpu_model();
  c.cores = usable_cores();
  c.clock = stated_clock();
  c.l2 = int64_t(caches.l2), c.l3 = int64_t(caches.l3);
  // One core reaches about 20 GB/s. All cores share at least two memory channels; in servers there are about
  // 5 GB/s for each core.
  c.core_bandwidth = 20e9;
  c.bandwidth = std::max(40e9, 5e9 * c.cores);
  return c;
}

std::atomic<const Cpu*> replaced{nullptr};

}  // namespace

const Cpu& current_cpu() {
  if (const Cpu* other = replaced.load(std::memory_order_acquire)) return *other;
  static const Cpu here = detect();
  return here;
}

void set_current_cpu(const Cpu* cpu) {
  // Earlier values are kept, because callers may hold references to them.
  static std::vector<std::unique_ptr<const Cpu>> kept;
  if (cpu) cpu = kept.emplace_back(std::make_unique<const Cpu>(*cpu)).get();
  replaced.store(cpu, std::memory_order_release);
  tuning_changed();
}

}  // namespace fastgemm
