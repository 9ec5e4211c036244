#include "simt/async.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

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

Barrier& checked(Barrier* b) {
  if (!aligned(b, 8)) fail("a barrier in shared memory is not 8-byte aligned");
  if (b->magic != kMagic) fail("a barrier in shared memory is used before it was initialized");
  return *b;
}

void end_phase_if_complete(Barrier& b) {
  if (b.missing != 0 || b.bytes != 0) return;
  b.phase ^= 1;
  b.missing = b.arrivals;
}

}  // namespace

void forget_copies() { copies.clear(); }

void copy_async_bytes(void* to, const void* from, int bytes, int valid) {
  if (valid < 0 || valid > bytes) fail("copy_async of " + std::to_string(valid) + " valid bytes");
  if (!aligned(to, bytes) || !aligned(from, bytes)) fail("copy_async is not aligned to its size");
  const void* site = __builtin_return_address(0);
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
  *b = {kMagic, 0, uint32_t(arrivals), uint32_t(arrivals), 0};
}

void arrive(Barrier* barrier) { arrive_expecting(barrier, 0); }

void arrive_expecting(Barrier* barrier, int bytes) {
  Barrier& b = checked(barrier);
  if (b.missing == 0) fail("more arrivals at a barrier than it was initialized for");
  order::release(barrier);
  b.bytes += bytes;
  --b.missing;
  end_phase_if_complete(b);
}

void wait_phase(Barrier* barrier, uint32_t parity) {
  const Barrier& b = checked(barrier);
  runtime::wait_until("the phase of a barrier in shared memory", [&] { return b.phase != (parity & 1); });
  order::acquire(barrier);
}

void load_box(void* to_shared, const TensorMap* map, Barrier* barrier, int column, int row, int plane) {
  checked(barrier);
  if (!aligned(to_shared, 128)) fail("load_box to an address that is not 128-byte aligned");
  const TensorMap m = *map;
  const int64_t row_bytes = int64_t(m.box_columns) * m.element_bytes;
  const auto bytes = int(row_bytes * m.box_rows);
  const void* site = __builtin_return_address(0);
  begin_async_write(to_shared, bytes, site);
  note_bulk(Kind::bulk_load, m.data, bytes, bytes / 32, site);
  std::memset(to_shared, 0xff, size_t(bytes));
  runtime::land_later([=] {
    for (int64_t i = 0; i < m.box_rows; ++i) {
      auto* to = static_cast<std::byte*>(to_shared) + i * row_bytes;
      std::memset(to, 0, size_t(row_bytes));
      if (row + i < 0 || row + i >= m.rows || plane < 0 || plane >= m.planes) continue;
      const std::byte* from = m.data + plane * m.plane_stride_bytes + (row + i) * m.row_stride_bytes;
      const int64_t first = std::max<int64_t>(column, 0);
      const int64_t last = std::min<int64_t>(int64_t(column) + m.box_columns, m.columns);
      if (first < last)
        std::memcpy(to + (first - column) * m.element_bytes, from + first * m.element_bytes,
                    size_t((last - first) * m.element_bytes));
    }
    end_async_write(to_shared, bytes, barrier);
    barrier->bytes -= bytes;
    end_phase_if_complete(*barrier);
  });
}

}  // namespace fastgemm::simt
