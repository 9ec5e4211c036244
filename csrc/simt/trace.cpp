#include "simt/trace.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "simt/counters.h"
#include "simt/memory.h"
#include "simt/symbols.h"

namespace fastgemm::simt {
namespace {

struct Access {
  uintptr_t address;
  uint32_t pc;
  uint8_t bytes;
  Kind kind;
  bool shared;
  bool same_site(const Access& other) const {
    return pc == other.pc && kind == other.kind && shared == other.shared;
  }
};

// The accesses of each lane of the running warp since it last waited.
std::array<std::vector<Access>, runtime::kWarp> lanes;
bool counted = false, checked = true;  // of this block
int64_t seen = 0;
bool is_instrumented = false;
uintptr_t undefined = 0;  // an address that may once be read before it is written
const uintptr_t image_base = symbols::base();

bool reads(Kind k) { return k == Kind::load || k == Kind::matrix_load; }

// Host memory that a kernel may read: its parameters, which are on the host's stack, and constants. Shared
// variables are excluded explicitly, because the system may place them beside the stack.
bool is_host(uintptr_t a) {
  return !memory::among_shared_variables(a) && (runtime::on_host_stack(a) || symbols::in_image(a));
}

[[noreturn]] void unknown_address(uintptr_t a, bool write, uint32_t pc) {
  report_and_stop("out of bounds", std::string(write ? "a write " : "a read ") + memory::nearest(a), {pc});
}

// Whether all of these bytes are set; their number is a power of two, at most 16. Half of all checks end
// here, so memchr, a function call, would be too slow.
bool all_set(const uint8_t* flags, int bytes) {
  uint64_t low = 0, high = 0;
  switch (bytes) {
    case 16:
      std::memcpy(&high, flags + 8, 8);
      std::memcpy(&low, flags, 8);
      return (low & high) == 0x0101010101010101u;
    case 8:
      std::memcpy(&low, flags, 8);
      return low == 0x0101010101010101u;
    case 4:
      std::memcpy(&low, flags, 4);
      return low == 0x01010101u;
    default:
      return !std::memchr(flags, 0, size_t(bytes));
  }
}

void check_initialized(const Region& r, uintptr_t a, int bytes, uint32_t pc) {
  // A block that did not run might have written it.
  if (r.initialized.empty() || (r.space == Space::global && !session().launch().complete)) return;
  if (a == std::exchange(undefined, 0)) return;
  if (!all_set(&r.initialized[r.offset(a)], bytes))
    report("uninitialized",
           "a read of '" + r.name + "' at offset " + std::to_string(r.offset(a)) + ", which nothing wrote",
           {pc});
}

void check(Region& r, uintptr_t a, int bytes, Kind kind, uint32_t pc) {
  const bool write = !reads(kind) && !(r.space == Space::global && kind == Kind::async_copy);
  if (a + uintptr_t(bytes) > r.end) unknown_address(r.end, write, pc);
  if (r.space == Space::shared && r.rank < 0 && runtime::cluster_size() > 1)
    report_and_stop(
        "static in a cluster",
        "'" + r.name + "': the simulator keeps no static shared memory for each block of a cluster", {pc});
  if (!checked) {
    if (write && r.space == Space::global && !r.initialized.empty())
      std::memset(&r.initialized[r.offset(a)], 1, size_t(bytes));
    return;
  }
  // A GPU stops at a misaligned access, and this processor may stop, too. bytes is a power of two.
  if (kind != Kind::async_copy && (a & uintptr_t(bytes - 1)) != 0)
    report_and_stop("misaligned",
                    "an access of " + std::to_string(bytes) + " bytes to '" + r.name + "' at offset " +
                        std::to_string(r.offset(a)),
                    {pc});
  if (r.space == Space::shared) {
    if (kind == Kind::async_copy) return;  // order::begin_copy checks it
    if (write)
      order::write(r, a, bytes, pc);
    else
      order::read(r, a, bytes, pc), check_initialized(r, a, bytes, pc);
    return;
  }
  if (!write) return check_initialized(r, a, bytes, pc);
  if (!r.writable)
    report("out of bounds", "a write to '" + r.name + "', which the kernel may only read", {pc});
  if (!r.initialized.empty()) std::memset(&r.initialized[r.offset(a)], 1, size_t(bytes));
}

void access(uintptr_t a, int bytes, Kind kind, uint32_t pc) {
  if (!runtime::inside() || runtime::on_fiber_stack(a)) return;  // registers and local memory
  Region* r = memory::find(a);
  if (!r) {
    if (is_host(a)) return;
    unknown_address(a, !reads(kind), pc);
  }
  ++seen;
  check(*r, a, bytes, kind, pc);
  if (!counted) return;
  if (r->space == Space::global) memory::touch(*r, a, size_t(bytes));
  lanes[size_t(runtime::lane_index())].push_back({a, pc, uint8_t(bytes), kind, r->space == Space::shared});
}

// A range that the compiler accesses as a whole, counted in parts of at most 16 bytes.
void access_range(uintptr_t a, size_t bytes, Kind kind, uint32_t pc) {
  if (!runtime::inside() || runtime::on_fiber_stack(a)) return;
  while (bytes > 0) {
    int piece = 16;
    while (size_t(piece) > bytes || a % uintptr_t(piece) != 0) piece /= 2;
    access(a, piece, kind, pc);
    a += uintptr_t(piece), bytes -= size_t(piece);
  }
}

Site& site_of(const Access& a) {
  const Space space = a.shared ? Space::shared : Space::global;
  Site& site = session().launch().sites[{a.pc, space, std::string()}];
  if (site.requests == 0) {
    site.pc = a.pc, site.space = space, site.kind = a.kind, site.bytes = a.bytes;
    site.buffer = memory::find(a.address)->name;
  }
  return site;
}

void count_request(const Access* const* first, const int* lane, int count) {
  Request request{.kind = first[0]->kind, .bytes = first[0]->bytes};
  for (int i = 0; i < count; ++i) {
    request.lanes |= 1u << lane[i];
    request.address[size_t(lane[i])] = first[i]->address;
  }
  const Cost cost = first[0]->shared ? shared_cost(request) : global_cost(request);
  Site& site = site_of(*first[0]);
  ++site.requests;
  site.lanes += count, site.sectors += cost.sectors, site.bytes_used += cost.bytes_used;
  site.wavefronts += cost.wavefronts, site.ideal_wavefronts += cost.ideal_wavefronts;
  const int64_t worst = first[0]->shared ? cost.wavefronts : cost.sectors;
  if (worst <= site.example_cost) return;
  site.example_cost = worst;
  site.example.fill(-1);
  const uintptr_t begin = memory::find(first[0]->address)->begin;
  for (int i = 0; i < count; ++i) site.example[size_t(lane[i])] = int64_t(first[i]->address - begin);
}

uint64_t key_of(const Access& a) { return uint64_t{a.pc} << 1 | a.shared; }

// Finds a site that all lanes pass in every iteration of their loop, although they took different branches.
// It is the site that most lanes reach, with about equal frequency. Returns 0 if there is none.
uint64_t find_pacemaker(size_t done) {
  struct Visits {
    int lanes = 0;
    size_t least = SIZE_MAX, most = 0;
  };
  std::map<uint64_t, Visits> sites;
  for (const auto& lane : lanes) {
    std::unordered_map<uint64_t, size_t> times;
    for (size_t i = done; i < lane.size(); ++i) ++times[key_of(lane[i])];
    for (const auto& [site, count] : times) {
      Visits& v = sites[site];
      ++v.lanes, v.least = std::min(v.least, count), v.most = std::max(v.most, count);
    }
  }
  const auto better = [](const auto& a, const auto& b) {
    return std::pair(a.second.lanes, a.second.least) < std::pair(b.second.lanes, b.second.least);
  };
  std::erase_if(sites, [](const auto& site) { return site.second.most - site.second.least > 1; });
  return sites.empty() ? 0 : std::max_element(sites.begin(), sites.end(), better)->first;
}

// Counts the accesses from `done` on, where lanes took different branches. Lanes that reach a site for the
// n-th time in the same iteration of a loop make one request together.
void count_divergent(size_t done) {
  struct Group {
    std::vector<const Access*> accesses;
    std::vector<int> lanes;
  };
  const uint64_t pacemaker = find_pacemaker(done);
  std::map<std::tuple<uint64_t, uint32_t, uint32_t>, Group> groups;
  for (int l = 0; l < runtime::kWarp; ++l) {
    std::unordered_map<uint64_t, uint32_t> times;
    uint32_t turn = 0;
    for (size_t i = done; i < lanes[size_t(l)].size(); ++i) {
      const Access& a = lanes[size_t(l)][i];
      if (key_of(a) == pacemaker) ++turn, times.clear();
      Group& group = groups[{key_of(a), turn, times[key_of(a)]++}];
      group.accesses.push_back(&a);
      group.lanes.push_back(l);
    }
  }
  for (const auto& [place, g] : groups) count_request(g.accesses.data(), g.lanes.data(), int(g.lanes.size()));
}

}  // namespace

void note(Kind kind, const void* address, int bytes, const void* site) {
  if (is_instrumented) access(reinterpret_cast<uintptr_t>(address), bytes, kind, trace::pc_of(site));
}

void note_bulk(Kind kind, const void* address, int64_t bytes, int64_t sectors, const void* site) {
  if (!counted) return;
  const uint32_t pc = trace::pc_of(site);
  Site& s = session().launch().sites[{pc, Space::global, "bulk"}];
  s.pc = pc, s.space = Space::global, s.kind = kind, s.bytes = int(bytes);
  if (const Region* r = memory::find(reinterpret_cast<uintptr_t>(address))) s.buffer = r->name;
  ++s.requests, ++s.lanes;
  s.sectors += sectors, s.bytes_used += bytes;
}

void note_mma(const char* instruction, int64_t flops, const void* site) {
  if (!counted) return;
  const uint32_t pc = trace::pc_of(site);
  Site& s = session().launch().sites[{pc, Space::none, instruction}];
  s.pc = pc, s.kind = Kind::mma, s.instruction = instruction;
  ++s.requests;
  s.lanes += runtime::kWarp, s.flops += flops;
}

namespace trace {

uint32_t pc_of(const void* site) { return uint32_t(reinterpret_cast<uintptr_t>(site) - image_base); }

void begin_block(bool is_counted, bool is_checked) {
  counted = is_counted, checked = is_checked;
  for (auto& lane : lanes) lane.clear();
}

bool instrumented() { return is_instrumented; }
void let_undefined(const void* address) { undefined = reinterpret_cast<uintptr_t>(address); }
bool counting() { return counted; }

void end_of_turn() {
  if (!counted) return;
  const Access* accesses[runtime::kWarp];
  int active[runtime::kWarp], count = 0;
  size_t least = SIZE_MAX, most = 0;
  for (int l = 0; l < runtime::kWarp; ++l) {
    const size_t n = lanes[size_t(l)].size();
    if (n == 0) continue;
    active[count++] = l, least = std::min(least, n), most = std::max(most, n);
  }
  if (count == 0) return;
  size_t done = 0;
  for (bool together = least == most; together && done < most; done += together) {
    for (int i = 0; i < count; ++i) accesses[i] = &lanes[size_t(active[i])][done];
    for (int i = 1; i < count; ++i) together &= accesses[i]->same_site(*accesses[0]);
    if (together) count_request(accesses, active, count);
  }
  if (done < most) count_divergent(done);
  for (auto& lane : lanes) lane.clear();
}

int64_t accesses() { return seen; }

}  // namespace trace
}  // namespace fastgemm::simt

// The callbacks of -fsanitize=thread, hidden from other libraries of the process.
extern "C" {
#define FASTGEMM_CALLBACK(name, bytes, kind)                                            \
  __attribute__((visibility("hidden"))) void name(void* p) {                            \
    fastgemm::simt::access(reinterpret_cast<uintptr_t>(p), bytes, fastgemm::simt::kind, \
                           fastgemm::simt::trace::pc_of(__builtin_return_address(0)));  \
  }
#define FASTGEMM_CALLBACKS(bytes)                                      \
  FASTGEMM_CALLBACK(__tsan_read##bytes, bytes, Kind::load)             \
  FASTGEMM_CALLBACK(__tsan_write##bytes, bytes, Kind::store)           \
  FASTGEMM_CALLBACK(__tsan_unaligned_read##bytes, bytes, Kind::load)   \
  FASTGEMM_CALLBACK(__tsan_unaligned_write##bytes, bytes, Kind::store) \
  FASTGEMM_CALLBACK(__tsan_volatile_read##bytes, bytes, Kind::load)    \
  FASTGEMM_CALLBACK(__tsan_volatile_write##bytes, bytes, Kind::store)
FASTGEMM_CALLBACKS(1)
FASTGEMM_CALLBACKS(2)
FASTGEMM_CALLBACKS(4)
FASTGEMM_CALLBACKS(8)
FASTGEMM_CALLBACKS(16)

#define FASTGEMM_HIDDEN __attribute__((visibility("hidden")))
FASTGEMM_HIDDEN void __tsan_read_range(void* p, size_t bytes) {
  fastgemm::simt::access_range(reinterpret_cast<uintptr_t>(p), bytes, fastgemm::simt::Kind::load,
                               fastgemm::simt::trace::pc_of(__builtin_return_address(0)));
}
FASTGEMM_HIDDEN void __tsan_write_range(void* p, size_t bytes) {
  fastgemm::simt::access_range(reinterpret_cast<uintptr_t>(p), bytes, fastgemm::simt::Kind::store,
                               fastgemm::simt::trace::pc_of(__builtin_return_address(0)));
}
FASTGEMM_HIDDEN void __tsan_init() { fastgemm::simt::is_instrumented = true; }
FASTGEMM_HIDDEN void __tsan_func_entry(void*) {}
FASTGEMM_HIDDEN void __tsan_func_exit() {}
FASTGEMM_HIDDEN void __tsan_vptr_update(void**, void*) {}
FASTGEMM_HIDDEN void __tsan_vptr_read(void**) {}
}
