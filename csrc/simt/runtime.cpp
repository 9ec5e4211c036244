#include "simt/runtime.h"

#include <pthread.h>

#include <stdexcept>

#include "simt/block.h"
#include "simt/order.h"
#include "simt/session.h"
#include "simt/symbols.h"

namespace fastgemm::simt::runtime {
namespace {

Block block;

struct Stack {
  uintptr_t begin = 0;
  size_t bytes = 0;
  Stack() {
    pthread_attr_t attributes;
    void* low;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    pthread_attr_getstack(&attributes, &low, &bytes);
    pthread_attr_destroy(&attributes);
    begin = reinterpret_cast<uintptr_t>(low);
  }
};
// Not inside of a function: symbols.cpp would take it for shared memory.
thread_local const Stack host_stack;

}  // namespace

std::recursive_mutex& one_at_a_time() {
  static std::recursive_mutex one;
  return one;
}

void refuse_within_launch(const char* kernel) { block.refuse_within_launch(kernel); }

void run_grid(const char* kernel, dim3 grid, dim3 size, size_t shared_bytes, const Body& body,
              const char* function, int cluster) {
  const std::lock_guard lock(one_at_a_time());
  refuse_within_launch(kernel);
  Session& now = session();
  if (!now.options.count) now.launches.clear();
  now.launches.push_back({.row = std::string(now.row),
                          .kernel = kernel,
                          .function = symbols::demangled(function),
                          .grid = grid,
                          .block = size,
                          .cluster = cluster,
                          .dynamic_shared = int64_t(shared_bytes),
                          .blocks = int64_t{grid.x} * grid.y * grid.z});
  block.run_grid(kernel, grid, size, cluster, shared_bytes, body);
}

void fail(const std::string& what) {
  throw std::runtime_error("fastgemm: " + block.where() + ", thread " + text(thread_place()) + ": " + what);
}

void fail_shuffle(int lane) { fail("a shuffle reads lane " + std::to_string(lane) + ", which is inactive"); }

void stop(const std::string& what) { block.stop(what); }

bool inside() { return block.inside(); }
bool on_fiber_stack(uintptr_t address) { return block.holds_stack(address); }

bool on_host_stack(uintptr_t address) { return address - host_stack.begin < host_stack.bytes; }

dim3 thread_place() { return block.thread_place(); }
dim3 block_place() { return block.place(); }
dim3 block_size() { return block.size(); }
dim3 grid_size() { return block.grid(); }

int thread_index() { return block.current_index(); }

void* dynamic_shared() { return block.shared(block.rank()); }
size_t dynamic_shared_bytes() { return block.shared_bytes(); }

int cluster_rank() { return block.rank(); }
int cluster_size() { return block.cluster(); }

void* in_shared_of(const void* own, int rank) {
  const auto begin = reinterpret_cast<uintptr_t>(block.shared(block.rank()));
  const uintptr_t offset = reinterpret_cast<uintptr_t>(own) - begin;
  if (rank < 0 || rank >= block.cluster())
    fail("there is no block " + std::to_string(rank) + " in a cluster of " + std::to_string(block.cluster()));
  if (offset >= block.shared_bytes())
    fail(
        "an address that is not in the calling block's dynamic shared memory has no counterpart in other "
        "blocks");
  return static_cast<std::byte*>(block.shared(rank)) + offset;
}

void set_registers(int count) { block.set_registers(count, __builtin_return_address(0)); }
void cluster_arrive() { block.arrive_at_cluster(__builtin_return_address(0)); }
void cluster_wait() { block.wait_for_cluster(__builtin_return_address(0)); }

void block_barrier(int id, int threads) {
  if (id < 0 || id >= kBarriers || threads % kWarp != 0)
    fail("barrier " + std::to_string(id) + " for " + std::to_string(threads) + " threads");
  Thread& t = block.current();
  t.barrier = id, t.barrier_threads = threads;
  block.suspend(State::at_barrier, "barrier", __builtin_return_address(0));
}

void warp_exchange(uint32_t mask, void* record, Exchange exchange) {
  if (!(mask >> lane_index() & 1)) fail("a lane outside the mask of a warp-wide operation takes part in it");
  block.current().mask = mask, block.current().record = record, block.current().exchange = exchange;
  block.suspend(State::in_warp, "the other lanes of its warp", __builtin_return_address(0));
}

void warp_barrier(uint32_t mask) {
  int thread = thread_index();
  warp_exchange(mask, &thread, [](void* const(&records)[kWarp]) {
    int threads[kWarp], count = 0;
    for (const void* record : records)
      if (record) threads[count++] = *static_cast<const int*>(record);
    order::join({threads, size_t(count)}, false);
  });
}

void warpgroup_exchange(void* record, WarpgroupExchange exchange) {
  if (thread_index() / kWarpgroup >= block.warpgroups()) fail("a warpgroup needs 128 threads");
  block.current().record = record, block.current().warpgroup_exchange = exchange;
  block.suspend(State::in_warpgroup, "the other threads of its warpgroup", __builtin_return_address(0));
}

void wait_until(const char* what, bool (*holds)(const void*), const void* argument, const void* site) {
  block.current().holds = holds, block.current().argument = argument;
  block.suspend(State::waiting, what, site);
}

void yield() { block.suspend(State::yielded, "a value in memory", __builtin_return_address(0)); }

void land_later(const void* to_shared, std::function<void()> land, const void* site) {
  block.land_later({to_shared, std::move(land), site});
}

}  // namespace fastgemm::simt::runtime
