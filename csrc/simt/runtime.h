// Runs a kernel's grid on the CPU. The threads of a block are fibers of one OS thread; a fiber runs until it
// waits for others, so between two barriers one thread is far ahead of the next: what a missing barrier would
// allow happens. Blocks, or clusters of them, run one after the other in the order of their index; the blocks
// of a cluster run together, as one set of fibers. One grid runs at a time in the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace fastgemm::simt::runtime {

// Of the fiber that runs; the same for all of its life, so that the compiler may ask once.
[[gnu::const]] dim3 thread_place();
[[gnu::const]] dim3 block_place();
[[gnu::const]] dim3 block_size();
[[gnu::const]] dim3 grid_size();

inline constexpr int kWarp = 32;
inline constexpr int kMostThreads = 1024, kMostOfCluster = 4096;  // of a block; of its cluster, here
inline constexpr uint32_t kFullWarp = 0xffffffffu;

// Runs `body` once for every thread of the grid. Throws std::runtime_error naming kernel, block and thread
// for a launch that a GPU would refuse, for a deadlock, and for what fail() and stop() report. `function` is
// the mangled name of a type that has the kernel in its name; `cluster` blocks side by side are a cluster.
void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
              const std::function<void()>& body, const char* function = "", int cluster = 1);

// Held while a grid runs, or code that launches some.
std::recursive_mutex& one_at_a_time();

// Throws if a grid is under way, whose thread asked the program whether to go on: a signal handler of it must
// not launch another. For those that hold one_at_a_time(), before they change what the grid works with.
void refuse_within_launch(const char* kernel);

// What follows is for the inside of a kernel.

[[noreturn]] void fail(const std::string& what);

// A shuffle names a lane that takes no part in it. (Instrumented code must not build messages itself: their
// characters are no GPU memory.)
[[noreturn]] void fail_shuffle(int lane);

// As fail(), for code that no exception may pass through: ends the block without coming back.
[[noreturn]] void stop(const std::string& what);

// Whether a thread of a kernel runs, or a collective operation of some.
bool inside();
bool on_fiber_stack(uintptr_t address);  // what a kernel keeps in registers and local memory
bool on_host_stack(uintptr_t address);

// Position of the calling thread in its block, x fastest; in a cluster behind the threads of the blocks
// before.
int thread_index();
inline int lane_index() { return thread_index() % kWarp; }

// Of the launch.
size_t dynamic_shared_bytes();
// Dynamic shared memory, 1024-byte aligned, exactly as large as the launch asked for; all bits set (NaN, -1)
// when a block starts.
void* dynamic_shared();

// The calling thread's block in its cluster, and the cluster's blocks. Clusters have whole warpgroups.
int cluster_rank();
int cluster_size();
// The same place in the dynamic shared memory of another block of the cluster.
void* in_shared_of(const void* own, int rank);
// Together a barrier among all threads of the cluster that have not returned.
void cluster_arrive();
void cluster_wait();

// Waits until `threads` threads of the block wait at barrier `id`; 0 threads: all that have not returned.
void block_barrier(int id, int threads);

// Waits until all lanes of the mask that have not returned are here, each with a record of its own; then
// `exchange` runs once over the records (null for other lanes), and all go on.
using Exchange = void (*)(void* const (&records)[kWarp]);
void warp_exchange(uint32_t mask, void* record, Exchange exchange);
void warp_barrier(uint32_t mask);

// The same among the four warps of a warpgroup, none of whose threads may have returned.
inline constexpr int kWarpgroup = 128;
using WarpgroupExchange = void (*)(void* const (&records)[kWarpgroup]);
void warpgroup_exchange(void* record, WarpgroupExchange exchange);

// Waits until `holds` does, at this place of the kernel. A block in which all threads wait for what cannot
// come is a deadlock.
void wait_until(const char* what, bool (*holds)(const void*), const void* argument, const void* site);
template <class Condition>
void wait_until(const char* what, const Condition& holds, const void* site) {
  if (holds()) return;
  wait_until(what, [](const void* c) { return (*static_cast<const Condition*>(c))(); }, &holds, site);
}

// Lets the other threads run: for a loop that looks at memory itself.
void yield();

// A copy on its way to shared memory: `land` runs when no thread can go on without it, the latest copy first.
// `site` asked for it.
void land_later(const void* to_shared, std::function<void()> land, const void* site);

}  // namespace fastgemm::simt::runtime

// CUDA's names.
#define threadIdx (::fastgemm::simt::runtime::thread_place())
#define blockIdx (::fastgemm::simt::runtime::block_place())
#define blockDim (::fastgemm::simt::runtime::block_size())
#define gridDim (::fastgemm::simt::runtime::grid_size())

namespace fastgemm::simt {
using runtime::dynamic_shared;
using runtime::run_grid;
}  // namespace fastgemm::simt
