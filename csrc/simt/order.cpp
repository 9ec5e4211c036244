#include "simt/order.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "simt/memory.h"
#include "simt/trace.h"
#include "simt/vector_clocks.h"

namespace fastgemm::simt {
namespace order {
namespace {

std::vector<uint32_t> clocks;
Knowledge seen, fenced;  // fenced: by a fence between ordinary and asynchronous accesses
bool fences = false;     // whether this block had any fence

// The bytes in flight that a thread requested. On a GPU all threads request at the same time, but the fibers
// of a block run one after the other. The maximum of a block is therefore the sum of the maxima of its
// threads.
struct Flight {
  int64_t now = 0, most = 0;
};
std::vector<Flight> flights;
std::vector<int64_t> most_in_flight;  // by block of a cluster

struct Object {
  Published known, of_phase;
};
std::unordered_map<const void*, Object> objects;
uint32_t first_clock = 1;  // of this block; older stamps are from earlier blocks

size_t threads_of_block = 0;  // or of a cluster; after them come the engines of the warpgroups
size_t threads_of_one = 0;    // threads of one block of a cluster
size_t running_engine = 0;    // 0: none

size_t running() { return running_engine ? running_engine : size_t(runtime::thread_index()); }

std::string who(size_t thread) {
  const bool engine = thread >= threads_of_block;
  const size_t place = engine ? thread - threads_of_block : thread;
  const size_t of_one = engine ? threads_of_one / runtime::kWarpgroup : threads_of_one;
  std::string name = engine ? "wgmma of warpgroup " : "thread ";
  if (threads_of_one == threads_of_block) return name + std::to_string(place);
  return name + std::to_string(place % of_one) + " of block " + std::to_string(place / of_one) +
         " of the cluster";
}

void publish(size_t thread, Published& to) {
  to.seen.resize(clocks.size());
  seen.tell(thread, to.seen);
  to.seen[thread] = std::max(to.seen[thread], clocks[thread]++);
  if (fences) fenced.tell(thread, to.fenced);
}

bool current(const Stamp& s) { return s.clock >= first_clock; }
bool ordered(const Stamp& s, size_t thread) {
  return s.thread == thread || s.clock <= seen.of(thread, s.thread);
}

const char* name_of(bool write) { return write ? "a write" : "a read"; }

void race(bool write, const Stamp& earlier, bool earlier_write, const Region& r, uintptr_t address,
          uint32_t pc) {
  report("race",
         std::string(name_of(write)) + " of '" + r.name + "' at offset " + std::to_string(r.offset(address)) +
             " is not ordered after " + name_of(earlier_write) + " by " + who(earlier.thread),
         {pc, earlier.pc});
}

void in_flight(bool write, const Region& r, uintptr_t address, uint32_t pc, uint32_t copy) {
  report("in flight",
         std::string(name_of(write)) + " of '" + r.name + "' at offset " + std::to_string(r.offset(address)) +
             " while an asynchronous copy of these bytes is under way",
         {pc, copy});
}

// The cell of a byte.
Cell& cell_of(Region& r, size_t offset) {
  Cell& word = r.cells[offset / 4];
  return word.split ? r.cells_of_bytes[offset] : word;
}

Cell& split_cell_of(Region& r, size_t offset) {
  if (r.cells_of_bytes.empty()) r.cells_of_bytes.resize(4 * r.cells.size());
  if (Cell& word = r.cells[offset / 4]; !word.split) {
    std::fill_n(&r.cells_of_bytes[offset / 4 * 4], 4, word);
    word.split = true;
  }
  return r.cells_of_bytes[offset];
}

// Calls visit(cell, address) for the cells of a range, until it returns false.
template <class Visit>
void visit_cells(Region& r, uintptr_t address, int bytes, const Visit& visit) {
  const size_t end = r.offset(address) + size_t(bytes);
  for (size_t at = r.offset(address); at < end;) {
    const bool whole = at % 4 == 0 && at + 4 <= end && !r.cells[at / 4].split;
    if (!visit(whole ? r.cells[at / 4] : split_cell_of(r, at), r.begin + at)) return;
    at += whole ? 4 : 1;
  }
}

// Whether the running thread may write now; if not, reports a race.
bool check_write(const Cell& c, Region& r, uintptr_t address, uint32_t pc, size_t thread) {
  if (c.write_in_flight) return in_flight(true, r, address, pc, c.write.pc), false;
  if (c.reads_in_flight) return in_flight(true, r, address, pc, c.read.pc), false;
  if (current(c.write) && !ordered(c.write, thread)) return race(true, c.write, true, r, address, pc), false;
  for (const Stamp* s : {&c.read, &c.other_read})
    if (current(*s) && !ordered(*s, thread)) return race(true, *s, false, r, address, pc), false;
  return true;
}

void set_write(Cell& c, uint32_t pc, size_t thread, bool ordinary) {
  c.write = {clocks[thread], pc, uint16_t(thread)};
  c.ordinary = ordinary;
  c.read = c.other_read = {};
}

// Whether to keep a read in place of another one. A cell remembers two reads: the first, and one of the
// others. Different cells prefer different warps, so that a tile as a whole remembers all of its readers.
bool keep(const Stamp& read, const Stamp& instead_of, uintptr_t address) {
  const auto rank = [&](const Stamp& s) {
    return (uint32_t(address / 4) + s.thread / runtime::kWarp) * 0x9e3779b1u;
  };
  return rank(read) >= rank(instead_of);
}

void set_read(Cell& c, uintptr_t address, uint32_t pc, size_t thread) {
  const Stamp now{clocks[thread], pc, uint16_t(thread)};
  // A read that is ordered before this one can be forgotten.
  const auto replaces = [&](const Stamp& s) { return !current(s) || ordered(s, thread); };
  if (replaces(c.read))
    c.read = now;
  else if (replaces(c.other_read) || keep(now, c.other_read, address))
    c.other_read = now;
}

}  // namespace

void begin_block(int threads, int of_a_block) {
  const uint32_t last = clocks.empty() ? 0 : *std::ranges::max_element(clocks);
  first_clock = last + 1;
  threads_of_block = size_t(threads), threads_of_one = size_t(of_a_block), running_engine = 0;
  const size_t all = threads_of_block + threads_of_block / runtime::kWarpgroup;
  clocks.assign(all, first_clock);
  seen.start(all), fenced.start(all);
  objects.clear();
  fences = false;
  flights.assign(size_t(threads), {}), most_in_flight.assign(threads_of_block / threads_of_one, 0);
}

void end_block(Region& r, int rank) {
  r.ended = true;
  const size_t first = size_t(rank) * threads_of_one, last = first + threads_of_one;
  Clocks known(clocks.size());
  for (size_t t = first; t < last; ++t)
    for (size_t u = 0; u < known.size(); ++u) known[u] = std::max(known[u], seen.of(t, u));
  const auto engines = threads_of_one / runtime::kWarpgroup;
  const auto by_others = [&](const Stamp& s) {
    const size_t of =
        s.thread < threads_of_block ? s.thread / threads_of_one : (s.thread - threads_of_block) / engines;
    return current(s) && of != size_t(rank) && s.clock > known[s.thread];
  };
  visit_cells(r, r.begin, int(r.end - r.begin), [&](const Cell& c, uintptr_t address) {
    for (const Stamp* s : {&c.write, &c.read, &c.other_read}) {
      if (!by_others(*s)) continue;
      report("ended block",
             "a block of the cluster may end before " + who(s->thread) + " gets to '" + r.name +
                 "' of it at offset " + std::to_string(r.offset(address)),
             {s->pc});
      return false;
    }
    return true;
  });
}

namespace {

void ended(const Region& r, uint32_t pc) {
  report_and_stop("ended block", "an access to '" + r.name + "' of a block of the cluster that has ended",
                  {pc});
}

}  // namespace

void join(std::span<const int> threads, bool all) {
  Published together;
  for (const int t : threads) publish(size_t(t), together);
  if (all) {
    seen.learn_all(together.seen);
    if (fences) fenced.learn_all(together.fenced);
    return;
  }
  for (const int t : threads) {
    seen.learn(size_t(t), together.seen);
    if (fences) fenced.learn(size_t(t), together.fenced);
  }
}

void release(const void* object) { publish(running(), objects[object].known); }
void release_own(const void* object) {
  const size_t thread = running();
  Clocks& known = objects[object].known.seen;
  known.resize(clocks.size());
  known[thread] = clocks[thread]++;
}
void arrive(const void* barrier) { publish(running(), objects[barrier].of_phase); }

void complete_phase(const void* barrier) {
  Object& o = objects[barrier];
  join_into(o.known.seen, o.of_phase.seen);
  join_into(o.known.fenced, o.of_phase.fenced);
  o.of_phase = {};
}

void acquire(const void* object) {
  const auto published = objects.find(object);
  if (published == objects.end()) return;
  seen.learn(running(), published->second.known.seen);
  if (fences) fenced.learn(running(), published->second.known.fenced);
}

AsWarpgroup::AsWarpgroup() {
  running_engine = threads_of_block + size_t(runtime::thread_index() / runtime::kWarpgroup);
}
AsWarpgroup::~AsWarpgroup() { running_engine = 0; }

void fence_async() {
  fences = true;
  Clocks now(clocks.size());
  for (size_t u = 0; u < now.size(); ++u) now[u] = seen.of(running(), u);
  now[running()] = clocks[running()]++;
  fenced.learn(running(), now);
}

void read(Region& r, uintptr_t address, int bytes, uint32_t pc) {
  if (r.ended) ended(r, pc);
  const size_t thread = running();
  visit_cells(r, address, bytes, [&](Cell& c, uintptr_t at) {
    if (c.write_in_flight) return in_flight(false, r, at, pc, c.write.pc), false;
    if (current(c.write) && !ordered(c.write, thread)) return race(false, c.write, true, r, at, pc), false;
    set_read(c, at, pc, thread);
    return true;
  });
}

void write(Region& r, uintptr_t address, int bytes, uint32_t pc) {
  if (r.ended) ended(r, pc);
  const size_t thread = running();
  visit_cells(r, address, bytes, [&](Cell& c, uintptr_t at) {
    if (!check_write(c, r, at, pc, thread)) return false;
    set_write(c, pc, thread, true);
    return true;
  });
  std::memset(&r.initialized[r.offset(address)], 1, size_t(bytes));
}

void read(const void* from, int bytes, const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  if (Region* r = memory::find(address); r && !r->cells.empty()) read(*r, address, bytes, trace::pc_of(site));
}

void write(const void* to, int bytes, const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(to);
  if (Region* r = memory::find(address); r && !r->cells.empty())
    write(*r, address, bytes, trace::pc_of(site));
}

namespace {

void count_in_flight(size_t thread, int64_t bytes) {
  Flight& flight = flights[thread];
  flight.now += bytes;
  if (flight.now <= flight.most) return;
  int64_t& of_block = most_in_flight[thread / threads_of_one];
  of_block += flight.now - flight.most;
  flight.most = flight.now;
  int64_t& of_launch = session().launch().bytes_in_flight;
  of_launch = std::max(of_launch, of_block);
}

// The thread that counts as the requester of bytes that go to this memory. For a multicast, it is the same
// thread of each block.
size_t asked_by(const Region& r, size_t thread) {
  return r.rank < 0 ? thread : size_t(r.rank) * threads_of_one + thread % threads_of_one;
}

// Starts a write of the running thread that lands later. From now on nobody else may access the bytes.
void begin_write(void* to, int bytes, const void* site, bool needs_fence) {
  const auto address = reinterpret_cast<uintptr_t>(to);
  Region* r = memory::find(address);
  if (!r || r->cells.empty()) return;  // not shared memory; note() has reported it
  const size_t thread = running();
  const uint32_t pc = trace::pc_of(site);
  if (r->ended) ended(*r, pc);
  visit_cells(*r, address, bytes, [&](Cell& c, uintptr_t at) {
    if (!check_write(c, *r, at, pc, thread)) return false;
    if (needs_fence && c.ordinary && current(c.write) && c.write.clock > fenced.of(thread, c.write.thread)) {
      report("proxy",
             "an asynchronous write of '" + r->name + "' follows an ordinary one without fence_async_shared",
             {pc, c.write.pc});
      return false;
    }
    set_write(c, pc, thread, false);
    c.write_in_flight = true;
    return true;
  });
  count_in_flight(asked_by(*r, thread), bytes);
}

void land(void* to, int bytes, bool ordinary, bool by_waiting_thread) {
  const auto address = reinterpret_cast<uintptr_t>(to);
  Region* r = memory::find(address);
  if (!r || r->cells.empty()) return;
  count_in_flight(asked_by(*r, cell_of(*r, r->offset(address)).write.thread), -bytes);
  visit_cells(*r, address, bytes, [&](Cell& c, uintptr_t) {
    c.write_in_flight = false, c.ordinary = ordinary;
    if (by_waiting_thread) c.write.clock = clocks[running()], c.write.thread = uint16_t(running());
    return true;
  });
  std::memset(&r->initialized[r->offset(address)], 1, size_t(bytes));
}

}  // namespace

void begin_copy(void* to, int bytes, const void* site) { begin_write(to, bytes, site, false); }
void end_copy(void* to, int bytes) { land(to, bytes, true, true); }

}  // namespace order

void begin_async_write(void* to, int bytes, const void* site) { order::begin_write(to, bytes, site, true); }

void end_async_write(void* to, int bytes, Barrier* publishes) {
  const auto address = reinterpret_cast<uintptr_t>(to);
  Region* r = memory::find(address);
  if (!r || r->cells.empty()) return;
  order::land(to, bytes, false, false);
  const order::Stamp& written = order::cell_of(*r, r->offset(address)).write;
  auto& seen = order::objects[publishes].of_phase.seen;
  seen.resize(order::clocks.size());
  seen[written.thread] = std::max(seen[written.thread], written.clock);
}

void begin_async_read(const void* from, int bytes, const void* site) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  Region* r = memory::find(address);
  if (!r || r->cells.empty()) return;
  const uint32_t pc = trace::pc_of(site);
  order::read(*r, address, bytes, pc);
  const size_t thread = order::running();
  order::visit_cells(*r, address, bytes, [&](order::Cell& c, uintptr_t) {
    ++c.reads_in_flight;
    if (!c.ordinary || !order::current(c.write) || c.write.clock <= order::fenced.of(thread, c.write.thread))
      return true;
    report("proxy",
           "an asynchronous read of '" + r->name + "' follows ordinary writes without fence_async_shared",
           {pc, c.write.pc});
    return false;
  });
}

void end_async_read(const void* from, int bytes) {
  const auto address = reinterpret_cast<uintptr_t>(from);
  Region* r = memory::find(address);
  if (!r || r->cells.empty()) return;
  order::visit_cells(*r, address, bytes, [&](order::Cell& c, uintptr_t) {
    if (c.reads_in_flight > 0) --c.reads_in_flight;
    if (runtime::inside()) {
      const size_t thread = order::running();
      c.read = {order::clocks[thread], c.read.pc, uint16_t(thread)};
    }
    return true;
  });
}

}  // namespace fastgemm::simt
