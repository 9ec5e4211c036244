#include "simt/counters.h"

#include <algorithm>
#include <bit>

namespace fastgemm::simt {
namespace {

constexpr int kBanks = 32, kBankBytes = 4, kSectorBytes = 32;

// Sorts `count` values, removes duplicates, and returns how many remain.
template <class Values>
int sort_unique(Values& values, int count) {
  std::sort(values.begin(), values.begin() + count);
  return int(std::unique(values.begin(), values.begin() + count) - values.begin());
}

// Calls visit(address) for the lanes of the mask.
template <class Visit>
void visit_lanes(const Request& r, uint32_t mask, const Visit& visit) {
  for (uint32_t left = r.lanes & mask; left != 0; left &= left - 1)
    visit(r.address[size_t(std::countr_zero(left))]);
}

int distinct_bytes(const Request& r) {
  std::array<uintptr_t, runtime::kWarp> starts;
  int count = 0;
  visit_lanes(r, ~0u, [&](uintptr_t a) { starts[size_t(count++)] = a; });
  count = sort_unique(starts, count);
  int bytes = 0;
  for (int i = 0; i < count; ++i) {
    const bool last = i + 1 == count;
    bytes += last ? r.bytes
                  : int(std::min<uintptr_t>(uintptr_t(r.bytes), starts[size_t(i + 1)] - starts[size_t(i)]));
  }
  return bytes;
}

// How many passes the lanes of the mask need. In one pass each bank delivers one word, to any number of
// lanes.
int bank_passes(const Request& r, uint32_t mask) {
  std::array<uintptr_t, runtime::kWarp * 4> words;
  int count = 0;
  visit_lanes(r, mask, [&](uintptr_t a) {
    for (uintptr_t w = a / kBankBytes; w <= (a + uintptr_t(r.bytes) - 1) / kBankBytes; ++w)
      words[size_t(count++)] = w;
  });
  count = sort_unique(words, count);
  std::array<int, kBanks> uses{};
  for (int i = 0; i < count; ++i) ++uses[words[size_t(i)] % kBanks];
  return *std::ranges::max_element(uses);
}

// Whether every two lanes whose numbers differ only in this bit read the same address, or one of them reads
// nothing.
bool agree_in_pairs(const Request& r, int bit) {
  for (int l = 0; l < runtime::kWarp; ++l)
    if ((r.lanes >> l & 1) && (r.lanes >> (l ^ bit) & 1) &&
        r.address[size_t(l)] != r.address[size_t(l ^ bit)])
      return false;
  return true;
}

}  // namespace

Cost global_cost(const Request& r) {
  std::array<uintptr_t, runtime::kWarp * 2> sectors;
  int count = 0;
  visit_lanes(r, ~0u, [&](uintptr_t a) {
    sectors[size_t(count++)] = a / kSectorBytes;
    const uintptr_t last = (a + uintptr_t(r.bytes) - 1) / kSectorBytes;
    if (last != a / kSectorBytes) sectors[size_t(count++)] = last;
  });
  return {.sectors = sort_unique(sectors, count), .bytes_used = distinct_bytes(r)};
}

// Shared memory delivers 32 words of 4 bytes at a time. Wide accesses are therefore split into groups: half
// warps for 8 bytes, quarter warps for 16. Plain loads serve two groups at once if in the whole warp lanes 2i
// and 2i + 1 have the same address, or lanes i and i ^ 2 do. For example, a 16-byte broadcast to all 32 lanes
// takes 2 wavefronts, not 4. Stores and matrix instructions never do this. These rules give the wavefronts
// that an H200 counts for each of 538 address patterns; tests/cpp/counters_test.cpp has the patterns that
// distinguish the rules.
Cost shared_cost(const Request& r) {
  int together = r.bytes <= 4 ? 32 : r.bytes == 8 ? 16 : 8;
  if (together < 32 && r.kind == Kind::load && (agree_in_pairs(r, 1) || agree_in_pairs(r, 2))) together *= 2;
  const uint32_t group = together == 32 ? ~0u : (1u << together) - 1;
  Cost cost{.bytes_used = distinct_bytes(r)};
  for (int first = 0; first < runtime::kWarp; first += together) {
    const int passes = bank_passes(r, group << first);
    cost.wavefronts += passes, cost.ideal_wavefronts += passes > 0;
  }
  return cost;
}

}  // namespace fastgemm::simt
