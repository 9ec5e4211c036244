#include "simt/memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "simt/symbols.h"
#include "simt/trace.h"

namespace fastgemm::simt::memory {
namespace {

// Sorted by address. The records of a shared variable are allocated when a block first touches it.
std::vector<std::unique_ptr<Region>> regions;
std::array<Region*, 4> recent{};
size_t next_recent = 0;
uint64_t block = 0, first_block_of_launch = 0;
symbols::Segment segment;  // the thread-local segment that holds the shared variables below

void insert(Region region) {
  const auto after =
      std::ranges::upper_bound(regions, region.begin, {}, [](const auto& r) { return r->begin; });
  regions.insert(after, std::make_unique<Region>(std::move(region)));
  recent = {};
}

template <class Condition>
void remove_if(const Condition& condition) {
  std::erase_if(regions, [&](const auto& r) { return condition(*r); });
  recent = {};
}

constexpr char kDynamic[] = "dynamic shared memory";

// Shared memory is undefined when a block starts. All bits are set, which reads as NaN or -1.
void clear_for_block(Region& r) {
  if (r.block == block) return;
  r.block = block;
  const size_t bytes = r.end - r.begin;
  std::memset(reinterpret_cast<void*>(r.begin), 0xff, bytes);
  r.initialized.assign(bytes, 0);
  r.ended = false;
  r.cells.resize((bytes + 3) / 4 + 1);
  for (order::Cell& c : r.cells) c.write_in_flight = c.split = false, c.reads_in_flight = 0;
}

// "tile" of "fastgemm::simt::(anonymous namespace)::gemm_tiled_kernel<...>(...)::tile".
std::string last_name(const std::string& qualified) {
  const size_t colons = qualified.rfind("::");
  return colons == std::string::npos ? qualified : qualified.substr(colons + 2);
}

}  // namespace

void add_global(const void* data, size_t bytes, const char* name, bool writable, bool initialized) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  if (bytes == 0) return;
  Region added{.begin = begin, .end = begin + bytes, .name = name, .writable = writable};
  // Overlapping buffers become one region: out may be c, or a and b may be slices of one matrix.
  remove_if([&](const Region& r) {
    if (r.space != Space::global || r.end <= added.begin || added.end <= r.begin) return false;
    initialized |= r.initialized.empty();
    added.begin = std::min(added.begin, r.begin), added.end = std::max(added.end, r.end);
    added.writable |= r.writable, added.name = r.name + ", " + added.name;
    return true;
  });
  if (!initialized) added.initialized.assign(added.end - added.begin, 0);
  insert(std::move(added));
}

void remove_all_global() {
  remove_if([](const Region& r) { return r.space == Space::global; });
}

void begin_launch(void* dynamic_shared, size_t bytes, int blocks, size_t pitch) {
  remove_if([](const Region& r) { return r.name == kDynamic; });
  if (segment != symbols::thread_segment()) {
    remove_if([](const Region& r) { return r.space == Space::shared; });
    segment = symbols::thread_segment();
    for (const symbols::Variable& v : symbols::shared_variables())
      insert({.begin = segment.begin + v.offset,
              .end = segment.begin + v.offset + v.bytes,
              .space = Space::shared,
              .name = last_name(v.name)});
  }
  first_block_of_launch = block + 1;
  for (int i = 0; i < blocks && bytes > 0; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(dynamic_shared) + size_t(i) * pitch;
    insert({.begin = begin, .end = begin + bytes, .space = Space::shared, .name = kDynamic, .rank = i});
  }
  for (const auto& r : regions)
    if (r->space == Space::global) r->touched.assign((r->end - r->begin) / 32 + 2, false);
}

void begin_block() {
  ++block, recent = {};
  for (const auto& r : regions)
    if (r->name == kDynamic) clear_for_block(*r);
}

void end_launch() {
  Launch& launch = session().launch();
  for (const auto& r : regions) {
    if (r->space == Space::global) {
      if (!launch.complete)
        r->initialized.clear();  // blocks that did not run would have written it; later launches read it
      const int64_t sectors = std::ranges::count(r->touched, true);
      launch.buffers.push_back({r->name, int64_t(r->end - r->begin), 32 * sectors});
    } else if (r->name != kDynamic && r->block >= first_block_of_launch) {
      launch.static_shared += int64_t(r->end - r->begin);
    }
  }
}

Region* find(uintptr_t address) {
  if (!trace::instrumented()) return nullptr;
  for (Region* r : recent)
    if (r && r->contains(address)) return r;
  const auto after = std::ranges::upper_bound(regions, address, {}, [](const auto& r) { return r->begin; });
  if (after == regions.begin() || !(*std::prev(after))->contains(address)) return nullptr;
  Region* r = std::prev(after)->get();
  if (r->space == Space::shared) clear_for_block(*r);
  return recent[next_recent++ % recent.size()] = r;
}

bool among_shared_variables(uintptr_t address) { return address - segment.begin < segment.bytes; }

std::string nearest(uintptr_t address) {
  const auto after = std::ranges::upper_bound(regions, address, {}, [](const auto& r) { return r->begin; });
  const auto text = [](size_t bytes, const char* where, const Region& r) {
    return std::to_string(bytes) + where + "'" + r.name + "' (" + std::to_string(r.end - r.begin) + " bytes)";
  };
  const bool has_before = after != regions.begin(), has_after = after != regions.end();
  const size_t past = has_before ? address - (*std::prev(after))->end : SIZE_MAX;
  const size_t ahead = has_after ? (*after)->begin - address : SIZE_MAX;
  if (!has_before && !has_after) return "no memory is known";
  return past <= ahead ? text(past, " bytes past the end of ", **std::prev(after))
                       : text(ahead, " bytes before ", **after);
}

void touch(Region& r, uintptr_t address, size_t bytes) {
  const size_t base = r.begin / 32;
  for (uintptr_t s = address / 32; s <= (address + bytes - 1) / 32; ++s) r.touched[s - base] = true;
}

}  // namespace fastgemm::simt::memory
