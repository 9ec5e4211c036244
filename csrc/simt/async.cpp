#include "simt/async.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "simt/box.h"
#include "simt/memory.h"
#include "simt/order.h"
#include "simt/runtime.h"
#include "simt/trace.h"

namespace fastgemm::simt {

using runtime::fail;

namespace {

struct Copy {
  void* to;
  int bytes;
  unsigned char data[16];
};

struct CopyGroups {
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> committed;
};

std::unordered_map<int, CopyGroups> copies;  // by thread of the block

CopyGroups& mine() { return copies[runtime::thread_index()]; }

bool aligned(const void* p, int bytes) { return reinterpret_cast<uintptr_t>(p) % unsigned(bytes) == 0; }

constexpr uint32_t kMagic = 0x5b;

Barrier& checked(Barrier* b, const void* site) {
  if (!aligned(b, 8))
    report_and_stop("misaligned", "a barrier in shared memory is not 8-byte aligned", {trace::pc_of(site)});
  order::read(b, sizeof(Barrier), site);
  if (b->magic != kMagic)
    report_and_stop("uninitialized", "a barrier in shared memory is used before it was initialized",
                    {trace::pc_of(site)});
  return *b;
}

void end_phase_if_complete(Barrier& b) {
  if (b.missing != 0 || b.bytes != 0) return;
  order::complete_phase(&b);
  b.phase ^= 1;
  b.missing = b.arrivals;
}

void count_arrival(Barrier* barrier, int bytes, const void* site) {
  Barrier& b = checked(barrier, site);
  if (b.missing == 0)
    report_and_stop("arrivals", "more arrivals at a barrier than it was initialized for",
                    {trace::pc_of(site)});
  order::arrive(barrier);
  b.bytes += bytes;
  --b.missing;
  end_phase_if_complete(b);
}

}  // namespace

void forget_copies() { copies.clear(); }

namespace {

// Whether a copy is invalid: copies must go from global to shared memory. note() reports addresses that are
// in no memory.
bool misplaced(const void* to, const void* from, int valid) {
  const auto elsewhere = [](const void* p, Space wanted) {
    const auto address = reinterpret_cast<uintptr_t>(p);
    const Region* r = memory::find(address);
    return r ? r->space != wanted : runtime::on_fiber_stack(address);
  };
  return trace::instrumented() &&
         (elsewhere(to, Space::shared) || (valid > 0 && elsewhere(from, Space::global)));
}

}  // namespace

void copy_async_bytes(void* to, const void* from, int bytes, int valid) {
  if (valid < 0 || valid > bytes) fail("copy_async of " + std::to_string(valid) + " valid bytes");
  const void* site = __builtin_return_address(0);
  if (!aligned(to, bytes) || !aligned(from, bytes))
    report_and_stop("misaligned", "copy_async of " + std::to_string(bytes) + " bytes is not aligned to them",
                    {trace::pc_of(site)});
  if (misplaced(to, from, valid))
    report_and_stop("out of bounds", "copy_async copies from global to shared memory only",
                    {trace::pc_of(site)});
  Copy copy{to, bytes, {}};
  if (valid > 0) {
    note(Kind::async_copy, from, valid, site);
    std::memcpy(copy.data, from, size_t(valid));
  }
  note(Kind::async_copy, to, bytes, site);
  order::begin_copy(to, bytes, site);
  std::memset(to, 0xff, size_t(bytes));
  mine().open.push_back(copy);
}

void commit_async_copies() {
  CopyGroups& groups = mine();
  groups.committed.push_back(std::move(groups.open));
  groups.open.clear();
}

void wait_pending_copies(int pending) {
  CopyGroups& groups = mine();
  while (int(groups.committed.size()) > pending) {
    for (const Copy& c : groups.committed.front()) {
      std::memcpy(c.to, c.data, size_t(c.bytes));
      order::end_copy(c.to, c.bytes);
    }
    groups.committed.pop_front();
  }
}

void init_barrier(Barrier* b, int arrivals) {
  if (!aligned(b, 8) || arrivals < 1 || arrivals > 1024) fail("init_barrier for " + std::to_string(arrivals));
  order::write(b, sizeof(Barrier), __builtin_return_address(0));
  *b = {kMagic, 0, uint32_t(arrivals), uint32_t(arrivals), 0};
}

void arrive(Barrier* barrier) { count_arrival(barrier, 0, __builtin_return_address(0)); }
void arrive_after_copies(Barrier* barrier) {
  commit_async_copies();
  wait_pending_copies(0);
  count_arrival(barrier, 0, __builtin_return_address(0));
}
void arrive_remote(Barrier* own, int rank) {
  count_arrival(static_cast<Barrier*>(runtime::in_shared_of(own, rank)), 0, __builtin_return_address(0));
}
void arrive_expecting(Barrier* barrier, int bytes) {
  count_arrival(barrier, bytes, __builtin_return_address(0));
}

void wait_phase(Barrier* barrier, uint32_t parity) {
  const Barrier& b = checked(barrier, __builtin_return_address(0));
  runtime::wait_until(
      "the phase of a barrier in shared memory", [&] { return b.phase != (parity & 1); },
      __builtin_return_address(0));
  order::acquire(barrier);
}

namespace {

void begin_load(const Box& box, void* to_shared, Barrier* barrier, const void* site) {
  begin_async_write(to_shared, box.bytes(), site);
  std::memset(to_shared, 0xff, size_t(box.bytes()));
  const auto land = [=] {
    box.load(static_cast<std::byte*>(to_shared));
    end_async_write(to_shared, box.bytes(), barrier);
    barrier->bytes -= box.bytes();
    end_phase_if_complete(*barrier);
  };
  runtime::land_later(to_shared, land, site);
}

}  // namespace

void load_box(void* to_shared, const TensorMap* map, Barrier* barrier, int column, int row, int plane) {
  checked(barrier, __builtin_return_address(0));
  const void* site = __builtin_return_address(0);
  const Box box(*map, column, row, plane);
  box.note(Kind::bulk_load, to_shared, site);
  begin_load(box, to_shared, barrier, site);
}

void store_remote(void* to_shared, const void* from, Barrier* own, int rank) {
  constexpr int kBytes = 16;
  const void* site = __builtin_return_address(0);
  auto* const to = static_cast<std::byte*>(runtime::in_shared_of(to_shared, rank));
  auto* const barrier = static_cast<Barrier*>(runtime::in_shared_of(own, rank));
  checked(barrier, site);
  if (!aligned(to, kBytes))
    report_and_stop("misaligned", "a store to another block is not aligned to 16 bytes",
                    {trace::pc_of(site)});
  note(Kind::store, to, kBytes, site);
  order::write(to, kBytes, site);  // an ordinary one; the barrier publishes it
  order::arrive(barrier);
  std::array<std::byte, kBytes> data;
  std::memcpy(data.data(), from, kBytes);
  std::memset(to, 0xff, kBytes);
  const auto land = [=] {
    std::memcpy(to, data.data(), kBytes);
    barrier->bytes -= kBytes;
    end_phase_if_complete(*barrier);
  };
  runtime::land_later(to, land, site);
}

void load_box_multicast(void* to_shared, const TensorMap* map, Barrier* barrier, int column, int row,
                        int plane, uint32_t cta_mask) {
  const void* site = __builtin_return_address(0);
  if (cta_mask == 0 || cta_mask >> runtime::cluster_size())
    fail("a multicast to a block that is not in the cluster");
  const Box box(*map, column, row, plane);
  box.note(Kind::bulk_load, to_shared, site);  // read once for all receivers
  for (int rank = 0; rank < runtime::cluster_size(); ++rank) {
    if (!(cta_mask >> rank & 1)) continue;
    auto* const of_block = static_cast<Barrier*>(runtime::in_shared_of(barrier, rank));
    checked(of_block, site);
    begin_load(box, runtime::in_shared_of(to_shared, rank), of_block, site);
  }
}

}  // namespace fastgemm::simt
