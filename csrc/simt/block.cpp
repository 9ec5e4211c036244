#include "simt/block.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <stdexcept>
#include <utility>

#include "core/interrupt.h"
#include "core/simulator.h"
#include "simt/async.h"
#include "simt/memory.h"
#include "simt/order.h"
#include "simt/session.h"
#include "simt/stacks.h"
#include "simt/symbols.h"
#include "simt/trace.h"
#include "simt/wgmma.h"

namespace fastgemm::simt::runtime {
namespace {

constexpr int kMostBlocks = 8;  // the portable maximum of a cluster
// If the threads of a block do nothing but yield this many times, the block is in a deadlock.
constexpr int kMostYields = 100'000;
// If only some blocks of a grid are counted, the others still run, unless the whole grid makes more accesses
// than kMostAccesses. The counted blocks make at most about kMostCounted. The start of a thread costs as much
// as kThreadStart accesses.
constexpr int64_t kMostAccesses = 300'000'000, kMostCounted = 100'000'000, kThreadStart = 10;

}  // namespace

std::string text(const dim3& d) {
  return std::string("(") + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) +
         ")";
}

Block::Block() = default;
Block::~Block() = default;

std::string Block::where() const { return "kernel '" + std::string(kernel_) + "', block " + text(place()); }

int Block::alive() const {
  return int(std::ranges::count_if(threads_, [](const Thread& t) { return t.state != State::done; }));
}

bool Block::any(State state) const {
  return std::ranges::find(threads_, state, &Thread::state) != threads_.end();
}

namespace {
void refuse(bool bad, const char* kernel, const std::string& what) {
  if (bad)
    throw std::runtime_error("fastgemm: launching kernel '" + std::string(kernel) + "' failed: " + what);
}

}  // namespace

void Block::refuse_within_launch(const char* kernel) const {
  refuse(poll_, kernel,
         "the program, asked whether to go on with kernel '" + std::string(kernel_) + "', runs another");
}

void Block::run_grid(const char* kernel, dim3 grid, dim3 size, int cluster, size_t shared_bytes,
                     const Body& body) {
  refuse(
      grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535,
      kernel, "grid " + text(grid));
  refuse(size.x == 0 || size.y == 0 || size.z == 0 || size.z > 64 ||
             uint64_t(size.x) * size.y * size.z > kMostThreads,
         kernel, "block " + text(size));
  refuse(shared_bytes > size_t(simulated_gpu().shared_bytes), kernel,
         std::to_string(shared_bytes) + " bytes of shared memory, and the simulated GPU gives a block " +
             std::to_string(simulated_gpu().shared_bytes));

  block_threads_ = int(size.x * size.y * size.z);
  refuse(cluster > 1 && simulated_gpu().capability < 90, kernel, "only GPUs since 9.0 have clusters");
  refuse(cluster < 1 || cluster > kMostBlocks || int(grid.x) % cluster != 0, kernel,
         "grid " + text(grid) + " in clusters of " + std::to_string(cluster) + " blocks");
  refuse(cluster > 1 && (block_threads_ % kWarpgroup != 0 || cluster * block_threads_ > kMostOfCluster),
         kernel,
         "the simulator has clusters of whole warpgroups, and of " + std::to_string(kMostOfCluster) +
             " threads");

  kernel_ = kernel, body_ = &body, shared_bytes_ = shared_bytes, cluster_ = cluster;
  if (const int most = std::max(kMostThreads, cluster * block_threads_);
      !stacks_ || stacks_->count() < most) {
    stacks_ = nullptr;
    stacks_ = std::make_unique<Stacks>(most);
    stacks_begin_ = stacks_->begin(), stacks_bytes_ = stacks_->bytes();
  }
  grid_ = grid, size_ = size;
  threads_ = std::vector<Thread>(size_t(cluster * block_threads_));
  for (size_t i = 0; i < threads_.size(); ++i) {
    const unsigned t = unsigned(i) % unsigned(block_threads_);
    threads_[i].index = dim3(t % size.x, t / size.x % size.y, t / size.x / size.y);
    threads_[i].rank = int(i) / block_threads_;
  }
  shared_.reset(static_cast<std::byte*>(::operator new(size_t(cluster) * shared_pitch(), kSharedAlign)));
  memory::begin_launch(shared_.get(), shared_bytes, cluster, shared_pitch());
  Poll poll;
  poll_ = &poll;
  try {
    run_blocks();
  } catch (...) {
    current_ = nullptr, poll_ = nullptr;
    memory::end_launch();  // also report a launch that ended by an error
    throw;
  }
  poll_ = nullptr;
  memory::end_launch();
}

namespace {

// Whether block i is one of about `wanted` evenly spread blocks. Multiples of the golden ratio are evenly
// spread and independent of the grid's width. Every fourth block would not be: in a grid 16 wide, it would
// never be at the right edge.
bool among(int64_t i, int64_t wanted, int64_t blocks) {
  const uint64_t fraction = uint64_t(i) * 0x9e3779b97f4a7c15u;
  return wanted >= blocks || double(fraction) * 0x1p-64 * double(blocks) < double(wanted);
}

}  // namespace

// Runs all blocks; the counted ones are evenly spread. If this would take too long, it runs only the blocks
// that are counted. These are then the first ones, because a block may wait for the blocks before it.
void Block::run_blocks() {
  const Options& options = session().options;
  if (!options.run) return;
  Launch& launch = session().launch();
  const int64_t before = trace::accesses();
  int64_t wanted = options.max_blocks ? options.max_blocks : launch.blocks;
  for (int64_t i = 0; i < launch.blocks; i += cluster_) {
    const bool counted = options.count && (launch.complete ? among(i, wanted, launch.blocks) : i < wanted);
    if (!counted && !launch.complete) break;
    place_ = dim3(unsigned(i % grid_.x), unsigned(i / grid_.x % grid_.y), unsigned(i / grid_.x / grid_.y));
    begin_block(counted);
    run_block();
    launch.blocks_counted += counted ? cluster_ : 0;
    if (i > 0 || !options.count || wanted >= launch.blocks) continue;
    const int64_t accesses = trace::accesses() - before + kThreadStart * int64_t(threads_.size());
    launch.complete = accesses / cluster_ * launch.blocks <= kMostAccesses;
    if (!launch.complete) wanted = std::clamp(kMostCounted * cluster_ / accesses, int64_t{1}, wanted);
  }
}

void Block::begin_block(bool counted) {
  backwards_ = !backwards_;
  in_flight_.clear();
  forget_copies(), forget_stores(), forget_wgmma();
  memory::begin_block();
  order::begin_block(int(threads_.size()), block_threads_);
  rank_at_barriers_ = 0;
  cluster_phase_ = 0, cluster_arrivals_ = returned_ = excused_ = 0;
  trace::begin_block(counted, counted || !session().options.count);
  for (int i = 0; i < int(threads_.size()); ++i) start(i);
}

void Block::run_block() {
  const int warps = (int(threads_.size()) + kWarp - 1) / kWarp;
  for (int idle = 0; alive() > 0;) {
    bool progress = false;
    for (int w = 0; w < warps; ++w) {
      if (poll_->stopped()) poll_->check();
      const int first = (backwards_ ? warps - 1 - w : w) * kWarp;
      progress |= run_warp(first, std::min(first + kWarp, int(threads_.size())));
    }
    for (rank_at_barriers_ = 0; rank_at_barriers_ < cluster_; ++rank_at_barriers_)
      progress |= release_barriers(rank_at_barriers_);
    rank_at_barriers_ = 0;
    progress |= release_warpgroups();
    if (progress) {
      idle = 0;
    } else if (!in_flight_.empty()) {
      land_one();
      idle = 0;
    } else if (++idle > kMostYields || !any(State::yielded)) {
      deadlock();
    }
  }
  if (!in_flight_.empty())
    report_and_stop("in flight", "the block ended while loads into its shared memory were under way",
                    {trace::pc_of(in_flight_.front().site)});
  end_stores();
}

void Block::set_registers(int count, const void* site) {
  constexpr int kOfMultiprocessor = 1 << 16;
  current().registers = count;
  int sum = 0;
  for (const Thread& t : of_block(current().rank)) sum += t.registers;
  if (sum > kOfMultiprocessor)
    report_and_stop("registers",
                    "threads of a block claim " + std::to_string(sum) + " registers; there are " +
                        std::to_string(kOfMultiprocessor),
                    {trace::pc_of(site)});
}

void Block::start(int thread) {
  Thread& t = threads_[size_t(thread)];
  t.state = State::ready, t.arrived = false, t.registers = 0;
  t.block = dim3(place_.x + unsigned(t.rank), place_.y, place_.z);
  t.fiber.start(stacks_->of(thread), Stacks::kUsable, thread_main, this);
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
  on_fiber_ = true;
  t.fiber.resume();
  on_fiber_ = false;
  current_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  if (t.state != State::done) return;
  ++returned_;
  if (!t.arrived || t.cluster_phase != cluster_phase_) ++excused_;
  complete_cluster_barrier();
  if (cluster_ == 1 || std::ranges::count(of_block(t.rank), State::done, &Thread::state) < block_threads_)
    return;
  current_ = &t;  // for messages
  end_block(t.rank);
  current_ = nullptr;
}

// Runs the lanes of a warp until all wait for something outside of the warp. Returns whether any lane made
// progress; yielding is no progress.
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
    trace::end_of_turn();
  } while (release_warp(first, last));
  return progress;
}

void Block::stop(const std::string& what) {
  const std::string thread = current_ ? ", thread " + text(current_->index) : "";
  const std::runtime_error error("fastgemm: " + where() + thread + ": " + what);
  if (!on_fiber_) {
    current_ = nullptr;
    throw error;
  }
  error_ = std::make_exception_ptr(error);
  suspend(State::done, "");
  std::abort();
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
        stop("lanes of warp " + std::to_string(first / kWarp) + " meet in different warp-wide operations");
      here |= 1u << (j - first);
      records[j - first] = t.record;
    }
    if (here != needed) continue;
    current_ = &threads_[size_t(i)];
    leader.exchange(records);
    current_ = nullptr;
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
      stop("threads of warpgroup " + std::to_string(first / kWarpgroup) + " meet in different operations");
    current_ = &group[0];
    exchange(records);
    current_ = nullptr;
    for (Thread& t : group) t.state = State::ready;
    released = true;
  }
  return released;
}

bool Block::release_barriers(int rank) {
  const std::span<Thread> threads = of_block(rank);
  int waiting[kBarriers] = {}, needed[kBarriers] = {};
  for (const Thread& t : threads) {
    if (t.state != State::at_barrier) continue;
    if (waiting[t.barrier]++ > 0 && needed[t.barrier] != t.barrier_threads)
      stop("barrier " + std::to_string(t.barrier) + " was asked for two numbers of threads");
    needed[t.barrier] = t.barrier_threads;
  }
  const auto left = int(std::ranges::count(threads, State::done, &Thread::state));
  bool released = false;
  for (int id = 0; id < kBarriers; ++id) {
    const int want = needed[id] ? needed[id] : block_threads_ - left;
    if (waiting[id] == 0 || waiting[id] < want) continue;
    if (waiting[id] > want)
      stop(std::to_string(waiting[id]) + " threads wait at barrier " + std::to_string(id) + " for " +
           std::to_string(want));
    release_barrier(rank, id, needed[id] == 0);
    released = true;
  }
  return released;
}

void Block::release_barrier(int rank, int id, bool everyone) {
  std::vector<int> members;
  const void* site = nullptr;
  for (Thread& t : of_block(rank)) {
    if (t.state != State::at_barrier || t.barrier != id) continue;
    t.state = State::ready;
    members.push_back(int(&t - threads_.data()));
    if (everyone && site && site != t.site) check_same_line(t, site);
    site = t.site;
  }
  if (everyone && int(members.size()) < block_threads_)
    report("barrier divergence",
           std::to_string(members.size()) + " of " + std::to_string(block_threads_) +
               " threads meet at __syncthreads, the others have returned",
           {trace::pc_of(site)});
  if (trace::counting() && (everyone || int(members.size()) == block_threads_)) ++session().launch().barriers;
  order::join(members, cluster_ == 1 && (everyone || members.size() == threads_.size()));
}

// All threads at a barrier must be at the same source line. Program counters may differ, because the compiler
// may copy code.
void Block::check_same_line(const Thread& t, const void* site) {
  const uint32_t here = trace::pc_of(t.site), there = trace::pc_of(site);
  if (symbols::source_line(here) == symbols::source_line(there)) return;
  report("barrier divergence", "threads of a block meet at different __syncthreads", {there, here});
}

void Block::land_one() {
  const Load last = std::move(in_flight_.back());
  in_flight_.pop_back();
  last.land();
}

void Block::deadlock() const {
  std::string what;
  std::vector<uint32_t> sites;
  for (const Thread& t : threads_) {
    if (t.state == State::done || std::ranges::count(sites, trace::pc_of(t.site)) > 0) continue;
    what += std::string(sites.empty() ? "" : "; ") + "thread " + text(t.index) +
            (cluster_ > 1 ? " of block " + text(t.block) : "") + " and on waits for " + t.waits_for;
    if (t.state == State::at_barrier) what += " " + std::to_string(t.barrier);
    sites.push_back(trace::pc_of(t.site));
  }
  report_and_stop("deadlock", what, sites);
}

}  // namespace fastgemm::simt::runtime
