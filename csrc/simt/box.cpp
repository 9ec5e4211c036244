#include "simt/box.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/device/fragment.cuh"
#include "simt/groups.h"
#include "simt/memory.h"
#include "simt/order.h"
#include "simt/runtime.h"
#include "simt/trace.h"

namespace fastgemm::simt {
namespace {

// Visits the 16-byte units of a part of a box's row: (place in shared memory, offset from the start of the
// part, bytes).
template <class Visit>
void for_each_unit(std::byte* piece, int64_t bytes, int swizzle_bytes, const Visit& visit) {
  const uintptr_t units = swizzle_bytes ? uintptr_t(swizzle_bytes) - 16 : 0;
  for (int64_t done = 0; done < bytes;) {
    const auto address = reinterpret_cast<uintptr_t>(piece + done);
    const int64_t step = std::min<int64_t>(bytes - done, 16 - int64_t(address % 16));
    visit(reinterpret_cast<std::byte*>(address ^ (address >> 3 & units)), done, step);
    done += step;
  }
}

struct Store {
  Box box;
  std::byte* from;
  const void* site;             // the instruction that requested it
  std::vector<std::byte> data;  // empty until it is read
};

std::unordered_map<int, Groups<Store>> stores;  // by thread of the block
Groups<Store>& mine() { return stores[runtime::thread_index()]; }

std::string said(bool store) { return store ? "a box is stored " : "a box is loaded "; }

void read(Store& s) {
  if (!s.data.empty()) return;
  s.data = s.box.take(s.from);
  end_async_read(s.from, s.box.bytes());
}

}  // namespace

// The hardware stores units of this size. If a row of the tensor ends inside a unit, the bytes after it are
// overwritten, too. (Seen on an H200: bf16, 47 columns in rows of 80; the 48th was overwritten.)
constexpr int64_t kStoredUnit = 16;

// Visits the parts of the box's rows that are inside the tensor: visit(row of the box, first byte in it,
// memory, bytes).
template <class Visit>
void Box::for_each_row(const Visit& visit) const {
  const int64_t first = std::max<int64_t>(column_, 0);
  const int64_t last = std::min<int64_t>(int64_t{column_} + map_.box_columns, map_.columns);
  if (first >= last) return;
  for (int64_t p = std::max<int64_t>(0, -int64_t{plane_}); p < map_.box_planes && plane_ + p < map_.planes;
       ++p)
    for (int64_t i = std::max<int64_t>(0, -int64_t{row_}); i < map_.box_rows && row_ + i < map_.rows; ++i) {
      const std::byte* memory =
          map_.data + (plane_ + p) * map_.plane_stride_bytes + (row_ + i) * map_.row_stride_bytes;
      visit(p * map_.box_rows + i, (first - column_) * map_.element_bytes,
            const_cast<std::byte*>(memory) + first * map_.element_bytes, (last - first) * map_.element_bytes);
    }
}

void Box::note(Kind kind, const void* shared, const void* site) const {
  const bool store = kind == Kind::bulk_store;
  check_place(store, shared, site);
  int64_t moved = 0, sectors = 0;
  const void* first = map_.data;  // a tensor may begin before the memory that it shows (ragged.cuh)
  for_each_row([&](int64_t, int64_t, std::byte* memory, int64_t bytes) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (store) bytes = (bytes + kStoredUnit - 1) / kStoredUnit * kStoredUnit;
    const uintptr_t end = address + uintptr_t(bytes);
    if (moved == 0) first = memory;
    Region* r = memory::find(address);
    if (!trace::instrumented()) return;
    if (!r || end > r->end)
      report_and_stop("out of bounds", said(store) + memory::nearest(r ? r->end : address),
                      {trace::pc_of(site)});
    if (store && !r->writable)
      report("out of bounds", said(store) + "to '" + r->name + "', which the kernel may only read",
             {trace::pc_of(site)});
    if (!store) simt::check_written(memory, int(bytes), site);
    if (trace::counting()) memory::touch(*r, address, size_t(bytes));
    moved += bytes, sectors += int64_t((end - 1) / 32 - address / 32 + 1);
  });
  note_bulk(kind, first, moved, sectors, site);
  if (store) check_written(static_cast<const std::byte*>(shared), site);
}

void Box::check_place(bool store, const void* shared, const void* site) const {
  const auto address = reinterpret_cast<uintptr_t>(shared);
  if (address % 128 != 0)
    report_and_stop("misaligned",
                    said(store) + (store ? "from" : "to") + " an address that is not 128-byte aligned",
                    {trace::pc_of(site)});
  // Seen on an H200: bf16 boxes from column 6, 7 or 12 on, an illegal instruction.
  if (const int64_t offset = int64_t{column_} * map_.element_bytes; offset % 16 != 0)
    report_and_stop("misaligned",
                    said(store) + "that begins at byte " + std::to_string(offset) +
                        " of a row, in the middle of 16 bytes",
                    {trace::pc_of(site)});
  if (!trace::instrumented()) return;
  const Region* r = memory::find(address);
  if (!r || r->space != Space::shared || address + uintptr_t(bytes()) > r->end)
    report_and_stop("out of bounds",
                    said(store) + (store ? "from " : "to ") + memory::nearest(r ? r->end : address),
                    {trace::pc_of(site)});
}

void Box::check_written(const std::byte* shared, const void* site) const {
  for_each_row([&](int64_t row, int64_t first, const std::byte*, int64_t bytes) {
    for_each_unit(
        const_cast<std::byte*>(shared) + row * row_bytes() + first, bytes, map_.swizzle_bytes,
        [&](const std::byte* from, int64_t, int64_t n) { simt::check_written(from, int(n), site); });
  });
}

void round_to_tf32(std::byte* floats, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 4) {
    float x;
    std::memcpy(&x, floats + i, 4);
    const Tf32 rounded = to_tf32(x);
    std::memcpy(floats + i, &rounded, 4);
  }
}

void Box::load(std::byte* shared) const {
  std::memset(shared, 0, size_t(bytes()));
  for_each_row([&](int64_t row, int64_t first, const std::byte* memory, int64_t bytes) {
    for_each_unit(shared + row * row_bytes() + first, bytes, map_.swizzle_bytes,
                  [&](std::byte* to, int64_t done, int64_t n) {
                    std::memcpy(to, memory + done, size_t(n));
                    if (map_.to_tf32) round_to_tf32(to, n);
                  });
  });
}

std::vector<std::byte> Box::take(const std::byte* shared) const {
  std::vector<std::byte> taken(static_cast<size_t>(bytes()));
  for_each_unit(const_cast<std::byte*>(shared), bytes(), map_.swizzle_bytes,
                [&](const std::byte* from, int64_t done, int64_t n) {
                  std::memcpy(&taken[size_t(done)], from, size_t(n));
                });
  return taken;
}

void Box::store(const std::vector<std::byte>& taken) const {
  for_each_row([&](int64_t row, int64_t first, std::byte* memory, int64_t bytes) {
    bytes = std::min((bytes + kStoredUnit - 1) / kStoredUnit * kStoredUnit, row_bytes() - first);
    std::memcpy(memory, &taken[size_t(row * row_bytes() + first)], size_t(bytes));
    const auto address = reinterpret_cast<uintptr_t>(memory);
    if (Region* r = memory::find(address); r && !r->initialized.empty())
      std::memset(&r->initialized[r->offset(address)], 1, size_t(bytes));
  });
}

void Box::poison() const {
  for_each_row(
      [](int64_t, int64_t, std::byte* memory, int64_t bytes) { std::memset(memory, 0xff, size_t(bytes)); });
}

void check_written(const std::byte* from, int bytes, const void* site) {
  if (session().options.count && !trace::counting()) return;  // nothing is recorded for this block
  const auto address = reinterpret_cast<uintptr_t>(from);
  const Region* r = memory::find(address);
  if (!r || address + uintptr_t(bytes) > r->end || r->initialized.empty()) return;
  // A block that did not run might have written it.
  if (r->space == Space::global && !session().launch().complete) return;
  if (std::memchr(&r->initialized[r->offset(address)], 0, size_t(bytes)))
    report("uninitialized",
           "an asynchronous read of '" + r->name + "' at offset " + std::to_string(r->offset(address)) +
               ", which nothing wrote",
           {trace::pc_of(site)});
}

void store_box(const TensorMap* map, const void* from_shared, int column, int row, int plane) {
  const void* site = __builtin_return_address(0);
  const Box box(*map, column, row, plane);
  box.note(Kind::bulk_store, from_shared, site);
  begin_async_read(from_shared, box.bytes(), site);
  box.poison();
  mine().open.push_back({box, static_cast<std::byte*>(const_cast<void*>(from_shared)), site, {}});
}

void commit_stores() { mine().commit(); }

// Afterwards the source may be overwritten, but the destination must not be read yet.
void wait_pending_stores_read(int pending) {
  auto& committed = mine().committed;
  for (int i = 0; i < int(committed.size()) - pending; ++i)
    for (Store& s : committed[size_t(i)]) read(s);
}

void wait_pending_stores(int pending) {
  mine().wait(pending, [](Store& s) {
    read(s);
    s.box.store(s.data);
  });
}

void forget_stores() { stores.clear(); }

void end_stores() {
  const auto check_read = [](const Store& s) {
    if (s.data.empty())
      report_and_stop("in flight",
                      "the block ended while stores read its shared memory: wait_stores_read is missing",
                      {trace::pc_of(s.site)});
  };
  for (auto& [thread, groups] : stores) {
    std::ranges::for_each(groups.open, check_read);
    for (const auto& group : groups.committed) std::ranges::for_each(group, check_read);
    groups.wait(0, [](Store& s) { s.box.store(s.data); });
  }
}

}  // namespace fastgemm::simt
