#include "core/cpu_features.h"

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#endif

namespace fastgemm {
namespace {

#if defined(__x86_64__)
struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf = 0) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d);
  return r;
}

// The register files that the operating system saves on a context switch (XCR0).
uint64_t enabled_state() {
  unsigned lo, hi;
  __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return (uint64_t{hi} << 32) | lo;
}

// Linux gives a process the 8 KiB AMX tile state only on request (ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
bool request_amx() {
#if defined(__linux__)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

std::string vendor_name(const Registers& r) {
  char text[13] = {};
  std::memcpy(text, &r.b, 4);
  std::memcpy(text + 4, &r.d, 4);
  std::memcpy(text + 8, &r.c, 4);
  return text;
}

std::string brand_name() {
  char text[49] = {};
  if (cpuid(0x80000000).a < 0x80000004) return "";
  for (unsigned i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002 + i);
    std::memcpy(text + 16 * i, &r, 16);
  }
  const std::string all(text);
  const size_t last = all.find_last_not_of(' ');
  return last == std::string::npos ? "" : all.substr(0, last + 1);
}

constexpr bool bit(unsigned word, int n) { return (word >> n) & 1; }

CpuFeatures detect() {
  CpuFeatures f;
  f.vendor = vendor_name(cpuid(0));
  f.brand = brand_name();
  const Registers r1 = cpuid(1), r7 = cpuid(7, 0), r71 = cpuid(7, 1);
  f.family = static_cast<int>((r1.a >> 8) & 0xf);
  f.model = static_cast<int>(((r1.a >> 4) & 0xf) | ((r1.a >> 12) & 0xf0));
  if (f.family == 0xf) f.family += static_cast<int>((r1.a >> 20) & 0xff);

  if (cpuid(0).a >= 0x16) f.max_megahertz = static_cast<int>(cpuid(0x16).b & 0xffff);

  const uint64_t state = bit(r1.c, 27) ? enabled_state() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6, tiles = (state & 0x60000) == 0x60000;
  f.avx2 = ymm && bit(r7.b, 5) && bit(r1.c, 12) && bit(r1.c, 29);                                // FMA, F16C
  f.avx512 = f.avx2 && zmm && bit(r7.b, 16) && bit(r7.b, 17) && bit(r7.b, 30) && bit(r7.b, 31);  // F DQ BW VL
  f.avx512_vnni = f.avx512 && bit(r7.c, 11);
  f.avx512_bf16 = f.avx512 && bit(r71.a, 5);
  f.avx512_fp16 = f.avx512 && bit(r7.d, 23);
  const bool amx = f.avx512 && tiles && bit(r7.d, 24) && request_amx();
  f.amx_bf16 = amx && f.avx512_bf16 && bit(r7.d, 22);  // the kernel rounds with an instruction of avx512_bf16
  f.amx_int8 = amx && bit(r7.d, 25);
  return f;
}
#elif defined(__aarch64__) && defined(__linux__)
// The units that Linux lets programs use. The bits are fixed by its interface; older headers do not name
// them.
CpuFeatures detect() {
  constexpr unsigned long kI8mm = 1ul << 13, kBf16 = 1ul << 14;  // HWCAP2_I8MM, HWCAP2_BF16
  const unsigned long units = getauxval(AT_HWCAP2);
  CpuFeatures f;
  f.neon_bf16 = units & kBf16;
  f.neon_i8mm = units & kI8mm;
  return f;
}
#else
CpuFeatures detect() { return {}; }
#endif

CpuFeatures capped() {
  CpuFeatures f = detected_cpu_features();
  const char* cap = std::getenv("FASTGEMM_CPU_ISA");
  if (!cap || !*cap || std::string_view(cap) == "native") return f;
  const std::string_view name(cap);
  if (name != "baseline" && name != "avx2" && name != "avx512")
    throw std::invalid_argument("FASTGEMM_CPU_ISA=" + std::string(name) +
                                ": expected baseline, avx2, avx512 or native");
  f.avx512_vnni = f.avx512_bf16 = f.avx512_fp16 = f.amx_bf16 = f.amx_int8 = false;
  f.neon_bf16 = f.neon_i8mm = false;
  f.avx512 = f.avx512 && name == "avx512";
  f.avx2 = f.avx2 && name != "baseline";
  return f;
}

// Throws if this build has no kernels for the instruction set.
CpuFeatures with_kernels(const CpuFeatures& f) {
#if defined(FASTGEMM_ONLY_ISA)
  if (f.isa() != Isa::FASTGEMM_ONLY_ISA)
    throw std::runtime_error(
        "fastgemm: this build has kernels only for the instruction set of the processor that compiled it "
        "(FASTGEMM_NATIVE); `make .venv/.installed` compiles all");
#endif
  return f;
}

// The size in bytes of a cache of processor 0 as Linux lists it ("32768K"), or 0. glibc's sysconf instead
// counts the L3 of a whole AMD socket, several times what the cores of one die share.
size_t listed_size(int index) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
  size_t size = 0;
  char unit = 0;
  if (!(file >> size)) return 0;
  file >> unit;
  return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
}

}  // namespace

std::string CpuFeatures::list() const {
  std::string text;
  const std::pair<bool, const char*> all[] = {{avx2, "avx2"},
                                              {avx512, "avx512"},
                                              {avx512_vnni, "avx512_vnni"},
                                              {avx512_bf16, "avx512_bf16"},
                                              {amx_bf16, "amx_bf16"},
                                              {amx_int8, "amx_int8"},
                                              {neon_bf16, "bf16"},
                                              {neon_i8mm, "i8mm"}};
  for (const auto& [on, name] : all) {
    if (!on) continue;
    if (!text.empty()) text += ' ';
    text += name;
  }
  return text.empty() ? "baseline" : text;
}

const CpuFeatures& detected_cpu_features() {
  static const CpuFeatures found = detect();
  return found;
}

const CpuFeatures& cpu_features() {
  static const CpuFeatures found = with_kernels(capped());
  return found;
}

const CpuCaches& cpu_caches() {
  static const CpuCaches found = [] {
    CpuCaches c;
    // index0 is L1 data, index1 L1 instructions.
    if (const size_t size = listed_size(0)) c.l1d = size;
    if (const size_t size = listed_size(2)) c.l2 = size;
    if (const size_t size = listed_size(3)) c.l3 = size;
    return c;
  }();
  return found;
}

}  // namespace fastgemm
