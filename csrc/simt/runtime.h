// Runs a kernel's grid on the CPU. The threads of a block are fibers of one OS thread. A fiber runs until it
// waits for others, so between two barriers one thread is far ahead of the next; a missing barrier therefore
// gives wrong results. Blocks run one after the other in the order of their index. The blocks of a cluster
// run together, as one set of fibers. Only one grid runs at a time in the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace fastgemm::simt::runtime {

// The indices of the running fiber. They never change for a fiber, so the compiler may read them once.
[[gnu::const]] dim3 thread_place();
[[gnu::const]] dim3 block_place();
[[gnu::const]] dim3 block_size();
[[gnu::const]] dim3 grid_size();

inline constexpr int kWarp = 32;
inline constexpr int kMostThreads = 1024, kMostOfCluster = 4096;  // of a block; of a cluster
inline constexpr uint32_t kFullWarp = 0xffffffffu;

// Refers to a function object of the caller, which outlives the launch. std::function would do the same, but
// every file of a kernel would have to read <functional>.
class Body {
 public:
  template <class Function>
    requires(!std::is_same_v<Function, Body>)
  Body(const Function& function)
      : function_(&function), call_([](const void* called) { (*static_cast<const Function*>(called))(); }) {}
  void operator()() const { call_(function_); }

 private:
  const void* function_;
  void (*call_)(const void*);
};

// Runs `body` once for every thread of the grid. Throws std::runtime_error, with the names of kernel, block
// and thread, for a launch that a GPU would refuse, for a deadlock, and for errors reported by fail() and
// stop() (host.h). `function` is the mangled name of a type whose name contains the kernel. `cluster`
// adjacent blocks form a cluster.
void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes, const Body& body,
              const char* function = "", int cluster = 1);

// The functions below are called inside of a kernel.

// Reports a shuffle that reads an inactive lane. (Instrumented code cannot build the message itself, because
// the memory of its characters is not GPU memory.)
[[noreturn]] void fail_shuffle(int lane);

// Whether a thread of a kernel or a collective operation is running.
bool inside();
bool on_fiber_stack(uintptr_t address);  // the kernel's registers and local memory
bool on_host_stack(uintptr_t address);

// The index of the calling thread in its block, x fastest. In a cluster, threads of blocks with lower rank
// come first.
int thread_index();
inline int lane_index() { return thread_index() % kWarp; }

// The bytes of dynamic shared memory that the launch requested for a block.
size_t dynamic_shared_bytes();
// Dynamic shared memory, 1024-byte aligned and exactly as large as the launch requested. All bits are set
// (NaN, -1) when a block starts.
void* dynamic_shared();

// The rank of the calling thread's block in its cluster, and the number of blocks. Clusters have whole
// warpgroups.
int cluster_rank();
int cluster_size();
// The same place in the dynamic shared memory of another block of the cluster.
void* in_shared_of(const void* own, int rank);
// Arrive and wait: together a barrier of all threads of the cluster that have not returned.
void cluster_arrive();
void cluster_wait();

// The registers that the calling thread has from now on (setmaxnreg). It is an error if the threads of the
// block that have called this have more than a multiprocessor: they would wait for each other for ever.
void set_registers(int count);

// Waits until `threads` threads of the block wait at barrier `id`. 0: all threads that have not returned.
void block_barrier(int id, int threads);

// Waits until all lanes of the mask that have not returned have called this, each with its own record. Then
// `exchange` runs once for all records (null for other lanes), and all lanes continue.
using Exchange = void (*)(void* const (&records)[kWarp]);
void warp_exchange(uint32_t mask, void* record, Exchange exchange);
void warp_barrier(uint32_t mask);

// The same for the four warps of a warpgroup. None of its threads may have returned.
inline constexpr int kWarpgroup = 128;
using WarpgroupExchange = void (*)(void* const (&records)[kWarpgroup]);
void warpgroup_exchange(void* record, WarpgroupExchange exchange);

// Waits at `site` until holds(argument) is true. If all threads of a block wait for something that cannot
// happen, it is a deadlock.
void wait_until(const char* what, bool (*holds)(const void*), const void* argument, const void* site);
template <class Condition>
void wait_until(const char* what, const Condition& holds, const void* site) {
  if (holds()) return;
  wait_until(what, [](const void* c) { return (*static_cast<const Condition*>(c))(); }, &holds, site);
}

// Lets the other threads run, for loops that poll memory.
void yield();

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
