// The cost of one warp-wide request, compared with the counters of an H200 (Nsight Compute 2025.3:
// l1tex__data_pipe_lsu_wavefronts_mem_shared and l1tex__t_sectors_pipe_lsu_mem_global) for one warp that made
// one access with these addresses.
#include "simt/counters.h"

#include <array>
#include <cstdio>
#include <functional>
#include <vector>

namespace fastgemm::simt {
namespace {

constexpr uint32_t kAll = 0xffffffff;
int failures = 0;

Request request(Kind kind, int bytes, uint32_t lanes, const std::function<int(int)>& offset) {
  Request r{.kind = kind, .bytes = bytes, .lanes = lanes, .address = {}};
  for (int l = 0; l < runtime::kWarp; ++l) r.address[size_t(l)] = 4096 + uintptr_t(offset(l));
  return r;
}

void expect(int computed, int measured, const Request& r, const char* what) {
  if (computed == measured) return;
  ++failures;
  std::printf("%s: %d computed, %d measured, for kind %d of %d bytes, lanes %08x:", what, computed, measured,
              int(r.kind), r.bytes, r.lanes);
  for (const uintptr_t a : r.address) std::printf(" %d", int(a) - 4096);
  std::printf("\n");
}

// The number made of the bits of `lane` that are set in `kept`. Lanes that differ only in other bits share an
// address.
int compress(int lane, int kept) {
  int number = 0, place = 0;
  for (int bit = 0; bit < 5; ++bit)
    if (kept >> bit & 1) number |= (lane >> bit & 1) << place++;
  return number;
}

// Wavefronts if lane l accesses stride * compress(l, kept), for every `kept`. 0: not measured.
struct Shared {
  Kind kind;
  int bytes, stride;
  std::array<int, 32> wavefronts;
};
constexpr Kind kLoad = Kind::load, kStore = Kind::store;
const Shared kShared[] = {
    {kLoad, 16, 16, {2, 2, 2, 4, 2, 2, 2, 4, 2, 2, 2, 4, 2, 2, 2, 4,
                     2, 2, 2, 4, 2, 2, 2, 4, 2, 2, 2, 4, 2, 2, 2, 4}},
    {kLoad, 16, 128, {2, 4, 4, 16, 4, 8, 8, 32, 4, 8, 8, 16, 8, 16, 16, 32,
                      2, 4, 4, 16, 4, 8, 8, 32, 4, 8, 8, 16, 8, 16, 16, 32}},
    {kLoad, 8, 8, {1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2,
                   1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2, 1, 1, 1, 2}},
    {kLoad, 8, 128, {1, 2, 2, 8, 2, 4, 4, 16, 2, 4, 4, 16, 4, 8,  8,  32,
                     2, 4, 4, 8, 4, 8, 8, 16, 4, 8, 8, 16, 8, 16, 16, 32}},
    {kStore, 16, 16, {4, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4,
                      0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4, 0, 4}},
    {kStore, 16, 128, {4, 0, 0, 16, 0, 0,  0, 0, 0, 8, 0, 0,  0, 0, 0, 32,
                       0, 0, 0, 0,  0, 16, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0}},
    {kStore, 8, 8, {2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 0, 2, 0, 2, 0, 2,
                    0, 2, 0, 2, 0, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0}},
    {kStore, 8, 128, {2, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 8, 0, 0, 0,
                      0, 0, 4, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0}},
};

void shared_by_structure() {
  for (const Shared& s : kShared)
    for (int kept = 0; kept < 32; ++kept) {
      const Request r = request(s.kind, s.bytes, kAll, [&](int l) { return s.stride * compress(l, kept); });
      if (const int measured = s.wavefronts[size_t(kept)])
        expect(shared_cost(r).wavefronts, measured, r, "shared");
    }
}

// Wavefronts if lane l accesses stride * l and some lanes are inactive. In matrix instructions, a lane
// accesses the row of 16 bytes whose address it gives.
struct Strided {
  Kind kind;
  int bytes, stride;
  uint32_t lanes;
  int wavefronts;
};
const Strided kStrided[] = {
    {kLoad, 16, 16, 0x00ff00ff, 2},
    {kLoad, 16, 16, 0x00ffffff, 3},
    {kLoad, 16, 16, 0x0f0f0f0f, 4},
    {kLoad, 16, 16, 0x33333333, 4},
    {kLoad, 16, 128, 0x00ff00ff, 16},
    {kLoad, 16, 128, 0x33333333, 16},
    {kLoad, 8, 8, 0x00ff00ff, 2},
    {kLoad, 8, 8, 0x33333333, 2},
    {kLoad, 8, 128, 0x0f0f0f0f, 16},
    {kLoad, 4, 64, kAll, 16},
    {kLoad, 4, 128, kAll, 32},
    {kLoad, 4, 132, kAll, 1},
    {kLoad, 2, 64, kAll, 16},
    {kLoad, 2, 128, kAll, 32},
    {kLoad, 2, 132, kAll, 1},
    {kLoad, 1, 64, kAll, 16},
    {kLoad, 1, 128, kAll, 32},
    {kLoad, 1, 132, kAll, 1},
    {kStore, 16, 16, 0x00ff00ff, 2},
    {kStore, 16, 16, 0x33333333, 4},
    {kStore, 16, 128, 0x33333333, 16},
    {kStore, 8, 8, 0x00ffffff, 2},
    {kStore, 8, 128, 0x0f0f0f0f, 16},
    {kStore, 4, 128, kAll, 32},
    {kStore, 2, 128, kAll, 32},
    {kStore, 1, 128, kAll, 32},
    {Kind::matrix_load, 16, 16, kAll, 4},
    {Kind::matrix_load, 16, 80, kAll, 4},
    {Kind::matrix_load, 16, 128, kAll, 32},
    {Kind::matrix_load, 16, 144, kAll, 4},
    {Kind::matrix_load, 16, 0, 0x000000ff, 1},
    {Kind::matrix_load, 16, 16, 0x0000ffff, 2},
    {Kind::matrix_store, 16, 16, kAll, 4},
    {Kind::matrix_store, 16, 128, kAll, 32},
    {Kind::matrix_store, 16, 144, kAll, 4},
};

void shared_by_stride() {
  for (const Strided& s : kStrided) {
    const Request r = request(s.kind, s.bytes, s.lanes, [&](int l) { return s.stride * l; });
    expect(shared_cost(r).wavefronts, s.wavefronts, r, "shared");
  }
}

// 16-byte loads that distinguish rules. Lanes have equal addresses in pairs in only one half of the warp, or
// in different pairs in its halves, or the other lane of a pair is inactive. Addresses are in units of 16
// bytes.
struct Irregular {
  uint32_t lanes;
  std::array<int, 32> address;
  int wavefronts;
};
const Irregular kIrregular[] = {
    {kAll,
     {0, 1, 2, 3, 4, 5, 6, 7, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 6, 6, 7, 7, 8, 8, 9, 9},
     4},
    {kAll,
     {0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7},
     4},
    {0x7a57b97e,
     {0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 6, 7, 0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7},
     4},
    {0xd157f7eb,
     {0, 1, 0, 1, 2, 3, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
     2},
    {kAll,
     {443, 443, 186, 186, 588, 588, 348, 348, 51,  51,  761, 761, 422, 422, 620, 620,
      483, 483, 483, 483, 671, 671, 671, 671, 880, 862, 880, 862, 468, 468, 468, 468},
     5},
    {kAll,
     {863, 863, 863, 863, 70,  70,  70,  70,  652, 652, 652, 652, 41,  41,  41,  41,
      496, 923, 496, 923, 383, 102, 383, 102, 749, 296, 749, 296, 172, 600, 172, 600},
     4},
    {0x2ab77dc8,
     {111, 265, 29,  144, 523, 882, 334, 113, 173, 780, 577, 496, 600, 92,  940, 379,
      171, 171, 972, 972, 571, 571, 411, 411, 508, 508, 10,  10,  186, 186, 541, 541},
     8},
};

void shared_irregular() {
  for (const Irregular& s : kIrregular) {
    const Request r = request(kLoad, 16, s.lanes, [&](int l) { return 16 * s.address[size_t(l)]; });
    expect(shared_cost(r).wavefronts, s.wavefronts, r, "shared");
  }
}

// Sectors: those that contain the lanes' bytes, for loads and stores alike.
void global() {
  struct Pattern {
    int bytes;
    std::function<int(int)> offset;
    uint32_t lanes;
    int sectors;
  };
  const Pattern patterns[] = {
      {4, [](int l) { return 4 * l; }, kAll, 4},
      {4, [](int l) { return 4 * l + 4; }, kAll, 5},
      {4, [](int l) { return 8 * l; }, kAll, 8},
      {4, [](int l) { return 4096 * l; }, kAll, 32},
      {4, [](int) { return 0; }, kAll, 1},
      {4, [](int l) { return 124 - 4 * l; }, kAll, 4},
      {4, [](int l) { return 128 * l; }, 0xff, 8},
      {1, [](int l) { return l; }, kAll, 1},
      {2, [](int l) { return 2 * l; }, kAll, 2},
      {8, [](int l) { return 8 * l; }, kAll, 8},
      {16, [](int l) { return 16 * l; }, kAll, 16},
      {16, [](int l) { return 16 * l + 16; }, kAll, 17},
      {16, [](int l) { return 32 * l; }, kAll, 32},
      {16, [](int l) { return 16 * l; }, 0x10001, 2},
      {4, [](int l) { return l / 8 * 1024 + l % 8 * 4; }, kAll, 4},
  };
  for (const Pattern& p : patterns) {
    const Request r = request(kLoad, p.bytes, p.lanes, p.offset);
    expect(global_cost(r).sectors, p.sectors, r, "global");
  }
}

// The hardware does not count requested bytes and wavefronts without a conflict.
void derived() {
  const Request broadcast = request(kLoad, 16, kAll, [](int) { return 0; });
  expect(shared_cost(broadcast).bytes_used, 16, broadcast, "bytes used");
  expect(shared_cost(broadcast).ideal_wavefronts, 2, broadcast, "ideal");
  const Request overlapping = request(kLoad, 8, kAll, [](int l) { return 4 * l; });
  expect(global_cost(overlapping).bytes_used, 132, overlapping, "bytes used");
  const Request column = request(kStore, 4, kAll, [](int l) { return 128 * l; });
  expect(shared_cost(column).ideal_wavefronts, 1, column, "ideal");
  const Request quarters = request(kStore, 16, 0xff0000ff, [](int l) { return 128 * l; });
  expect(shared_cost(quarters).ideal_wavefronts, 2, quarters, "ideal");
}

}  // namespace
}  // namespace fastgemm::simt

int main() {
  using namespace fastgemm::simt;
  shared_by_structure();
  shared_by_stride();
  shared_irregular();
  global();
  derived();
  if (failures) std::printf("%d wrong\n", failures);
  return failures != 0;
}
