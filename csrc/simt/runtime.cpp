#include "simt/runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "simt/async.h"
#include "simt/fiber.h"

namespace fastgemm::simt::runtime {
namespace {

constexpr int kMostThreads = 1024, kBarriers = 16;
constexpr size_t kMostShared = 227 * 1024, kStackBytes = 256 * 1024, kGuardBytes = 4096;
// A block in which threads have yielded this often, and nothing else happened, is dead.
constexpr int kMostYields = 100'000;

std::string text(const dim3& d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}

// One stack for each thread of the largest block, kept for the life of the OS thread. A page is taken when a
// fiber first touches it; below each stack lies one that traps.
class Stacks {
 public:
  Stacks() {
    void* p = mmap(nullptr, kMostThreads * kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(p);
    for (int i = 0; i < kMostThreads; ++i) mprotect(base_ + size_t(i) * kStackBytes, kGuardBytes, PROT_NONE);
  }
  ~Stacks() { munmap(base_, kMostThreads * kStackBytes); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::byte* of(int thread) const { return base_ + size_t(thread) * kStackBytes + kGuardBytes; }
  static constexpr size_t kUsable = kStackBytes - kGuardBytes;

 private:
  std::byte* base_;
};

enum class State : uint8_t { ready, at_barrier, in_warp, in_warpgroup, waiting, yielded, done };

struct Thread {
  Fiber fiber;
  dim3 index;
  State state;
  const char* waits_for;
  int barrier, barrier_threads;  // at_barrier
  uint32_t mask;                 // in_warp
  void* record;
  Exchange exchange;
  WarpgroupExchange warpgroup_exchange;  // in_warpgroup
  bool (*holds)(const void*);            // waiting
  const void* argument;
};

class Block {
 public:
  void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()>& body);

  Thread& current() { return *current_; }
  int current_index() const { return int(current_ - threads_.data()); }
  void suspend(State state, const char* waits_for) {
    current_->state = state, current_->waits_for = waits_for;
    current_->fiber.suspend();
  }
  int warpgroups() const { return int(threads_.size()) / kWarpgroup; }
  void* shared() const { return shared_.get(); }
  size_t shared_bytes() const { return shared_bytes_; }
  void land_later(std::function<void()> land) { in_flight_.push_back(std::move(land)); }
  std::string where() const { return "kernel '" + std::string(kernel_) + "', block " + text(blockIdx); }

 private:
  void run_block();
  void start(int thread);
  bool run_warp(int first, int last);
  void run_thread(Thread& t);
  bool release_warp(int first, int last);
  bool release_warpgroups();
  bool release_barriers();
  void land_one();
  [[noreturn]] void deadlock() const;
  int alive() const {
    return int(std::ranges::count_if(threads_, [](const Thread& t) { return t.state != State::done; }));
  }
  bool any(State state) const { return std::ranges::find(threads_, state, &Thread::state) != threads_.end(); }
  static void thread_main(void* self);

  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kSharedAlign); }
  };
  static constexpr std::align_val_t kSharedAlign{1024};

  const char* kernel_ = "";
  const std::function<void()>* body_ = nullptr;
  std::unique_ptr<Stacks> stacks_;
  std::vector<Thread> threads_;
  Thread* current_ = nullptr;
  std::unique_ptr<std::byte, Free> shared_;
  size_t shared_bytes_ = 0;
  std::vector<std::function<void()>> in_flight_;
  std::exception_ptr error_;
  bool backwards_ = false;  // the order in which warps and lanes run, changed from block to block
};

thread_local Block block;

void refuse(bool bad, const char* kernel, const std::string& what) {
  if (bad)
    throw std::runtime_error("fastgemm: launching kernel '" + std::string(kernel) + "' failed: " + what);
}

void Block::run_grid(const char* kernel, dim3 grid, dim3 size, size_t shared_bytes,
                     const std::function<void()>& body) {
  refuse(
      grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535,
      kernel, "grid " + text(grid));
  refuse(size.x == 0 || size.y == 0 || size.z == 0 || size.z > 64 ||
             uint64_t(size.x) * size.y * size.z > kMostThreads,
         kernel, "block " + text(size));
  refuse(shared_bytes > kMostShared, kernel, std::to_string(shared_bytes) + " bytes of shared memory");

  kernel_ = kernel, body_ = &body, shared_bytes_ = shared_bytes;
  if (!stacks_) stacks_ = std::make_unique<Stacks>();
  threads_ = std::vector<Thread>(size.x * size.y * size.z);
  for (size_t i = 0; i < threads_.size(); ++i)
    threads_[i].index =
        dim3(unsigned(i) % size.x, unsigned(i) / size.x % size.y, unsigned(i) / size.x / size.y);
  shared_.reset(static_cast<std::byte*>(::operator new(shared_bytes, kSharedAlign)));
  blockDim = size, gridDim = grid;
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x; ++x) {
        blockIdx = dim3(x, y, z);
        std::memset(shared_.get(), 0xff, shared_bytes);
        run_block();
        backwards_ = !backwards_;
      }
}

void Block::run_block() {
  in_flight_.clear();
  forget_copies();
  for (int i = 0; i < int(threads_.size()); ++i) start(i);
  const int warps = (int(threads_.size()) + kWarp - 1) / kWarp;
  for (int idle = 0; alive() > 0;) {
    bool progress = false;
    for (int w = 0; w < warps; ++w) {
      const int first = (backwards_ ? warps - 1 - w : w) * kWarp;
      progress |= run_warp(first, std::min(first + kWarp, int(threads_.size())));
    }
    progress |= release_warpgroups();
    progress |= release_barriers();
    if (progress) {
      idle = 0;
    } else if (!in_flight_.empty()) {
      land_one();
      idle = 0;
    } else if (++idle > kMostYields || !any(State::yielded)) {
      deadlock();
    }
  }
  if (!in_flight_.empty()) fail("the block ended while loads into its shared memory were under way");
}

void Block::start(int thread) {
  threads_[size_t(thread)].state = State::ready;
  threads_[size_t(thread)].fiber.start(stacks_->of(thread), Stacks::kUsable, thread_main, this);
}

void Block::thread_main(void* self) {
  Block& b = *static_cast<Block*>(self);
  try {
    (*b.body_)();
  } catch (...) {
    b.error_ = std::current_exception();
  }
  b.suspend(State::done, "");
}

void Block::run_thread(Thread& t) {
  current_ = &t;
  threadIdx = t.index;
  t.fiber.resume();
  current_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Runs the lanes of a warp until all wait for something outside it; whether any of them got further, which
// yielding is not.
bool Block::run_warp(int first, int last) {
  bool progress = false;
  for (int i = first; i < last; ++i) {
    Thread& t = threads_[size_t(i)];
    if (t.state == State::waiting && t.holds(t.argument)) t.state = State::ready;
    if (t.state == State::yielded) run_thread(t), progress |= t.state != State::yielded;
  }
  do {
    for (int i = first; i < last; ++i) {
      Thread& t = threads_[size_t(backwards_ ? first + last - 1 - i : i)];
      if (t.state == State::ready) run_thread(t), progress = true;
    }
  } while (release_warp(first, last));
  return progress;
}

bool Block::release_warp(int first, int last) {
  uint32_t alive = 0;
  for (int i = first; i < last; ++i)
    if (threads_[size_t(i)].state != State::done) alive |= 1u << (i - first);
  bool released = false;
  for (int i = first; i < last; ++i) {
    const Thread& leader = threads_[size_t(i)];
    if (leader.state != State::in_warp) continue;
    const uint32_t needed = leader.mask & alive;
    void* records[kWarp] = {};
    uint32_t here = 0;
    for (int j = first; j < last; ++j) {
      const Thread& t = threads_[size_t(j)];
      if (t.state != State::in_warp || t.mask != leader.mask) continue;
      if (t.exchange != leader.exchange)
        throw std::runtime_error("fastgemm: " + where() + ": lanes of warp " + std::to_string(first / kWarp) +
                                 " meet in different warp-wide operations");
      here |= 1u << (j - first);
      records[j - first] = t.record;
    }
    if (here != needed) continue;
    leader.exchange(records);
    for (int j = first; j < last; ++j)
      if (here >> (j - first) & 1) threads_[size_t(j)].state = State::ready;
    released = true;
  }
  return released;
}

bool Block::release_warpgroups() {
  bool released = false;
  for (int first = 0; first + kWarpgroup <= int(threads_.size()); first += kWarpgroup) {
    const std::span group(&threads_[size_t(first)], size_t(kWarpgroup));
    if (std::ranges::count(group, State::in_warpgroup, &Thread::state) < kWarpgroup) continue;
    void* records[kWarpgroup];
    std::ranges::transform(group, records, &Thread::record);
    const WarpgroupExchange exchange = group[0].warpgroup_exchange;
    if (std::ranges::count(group, exchange, &Thread::warpgroup_exchange) < kWarpgroup)
      throw std::runtime_error("fastgemm: " + where() + ": threads of warpgroup " +
                               std::to_string(first / kWarpgroup) + " meet in different operations");
    exchange(records);
    for (Thread& t : group) t.state = State::ready;
    released = true;
  }
  return released;
}

bool Block::release_barriers() {
  int waiting[kBarriers] = {}, needed[kBarriers] = {};
  for (const Thread& t : threads_) {
    if (t.state != State::at_barrier) continue;
    if (waiting[t.barrier]++ > 0 && needed[t.barrier] != t.barrier_threads)
      throw std::runtime_error("fastgemm: " + where() + ": barrier " + std::to_string(t.barrier) +
                               " was asked for two numbers of threads");
    needed[t.barrier] = t.barrier_threads;
  }
  bool released = false;
  for (int id = 0; id < kBarriers; ++id) {
    const int want = needed[id] ? needed[id] : alive();
    if (waiting[id] == 0 || waiting[id] < want) continue;
    if (waiting[id] > want)
      throw std::runtime_error("fastgemm: " + where() + ": " + std::to_string(waiting[id]) +
                               " threads wait at barrier " + std::to_string(id) + " for " +
                               std::to_string(want));
    for (Thread& t : threads_)
      if (t.state == State::at_barrier && t.barrier == id) t.state = State::ready;
    released = true;
  }
  return released;
}

void Block::land_one() {
  const std::function<void()> land = std::move(in_flight_.back());
  in_flight_.pop_back();
  land();
}

void Block::deadlock() const {
  std::string what = "fastgemm: " + where() + ": deadlock";
  const char* last = nullptr;
  for (const Thread& t : threads_) {
    if (t.state == State::done || (last && !std::strcmp(last, t.waits_for))) continue;
    last = t.waits_for;
    what += "; thread " + text(t.index) + " and on waits for " + last;
    if (t.state == State::at_barrier) what += " " + std::to_string(t.barrier);
  }
  throw std::runtime_error(what);
}

}  // namespace

void run_grid(const char* kernel, dim3 grid, dim3 size, size_t shared_bytes,
              const std::function<void()>& body) {
  block.run_grid(kernel, grid, size, shared_bytes, body);
}

void fail(const std::string& what) {
  throw std::runtime_error("fastgemm: " + block.where() + ", thread " + text(threadIdx) + ": " + what);
}

int thread_index() { return block.current_index(); }

size_t dynamic_shared_bytes() { return block.shared_bytes(); }
void* dynamic_shared() { return block.shared(); }

void block_barrier(int id, int threads) {
  if (id < 0 || id >= kBarriers || threads % kWarp != 0)
    fail("barrier " + std::to_string(id) + " for " + std::to_string(threads) + " threads");
  block.current().barrier = id, block.current().barrier_threads = threads;
  block.suspend(State::at_barrier, "barrier");
}

void warp_exchange(uint32_t mask, void* record, Exchange exchange) {
  if (!(mask >> lane_index() & 1)) fail("a lane outside the mask of a warp-wide operation takes part in it");
  block.current().mask = mask, block.current().record = record, block.current().exchange = exchange;
  block.suspend(State::in_warp, "the other lanes of its warp");
}

void warpgroup_exchange(void* record, WarpgroupExchange exchange) {
  if (thread_index() / kWarpgroup >= block.warpgroups()) fail("a warpgroup needs 128 threads");
  block.current().record = record, block.current().warpgroup_exchange = exchange;
  block.suspend(State::in_warpgroup, "the other threads of its warpgroup");
}

void wait_until(const char* what, bool (*holds)(const void*), const void* argument) {
  block.current().holds = holds, block.current().argument = argument;
  block.suspend(State::waiting, what);
}

void yield() { block.suspend(State::yielded, "a value in memory"); }

void land_later(std::function<void()> land) { block.land_later(std::move(land)); }

}  // namespace fastgemm::simt::runtime
