// Which access happens before which, among the threads of a block, and the races that follow. Every thread
// has a clock, and knows of every other thread's clock what barriers told it (vector clocks: Lamport;
// Mattern; vector_clocks.h). An access of thread t at time c is ordered before one of thread u if u knows t's
// clock to be c or later.
#pragma once

#include <cstdint>
#include <span>

namespace fastgemm::simt {
struct Region;
}

namespace fastgemm::simt::order {

struct Stamp {
  uint32_t clock = 0, pc = 0;  // clock 0: no access
  uint16_t thread = 0;
};

// What is remembered of four bytes of shared memory, or of each of them once they were accessed one by one:
// the last write, and two reads after it.
struct Cell {
  Stamp write, read, other_read;
  bool write_in_flight = false;
  bool ordinary = false;  // last written by the threads, not by the asynchronous proxy
  bool split = false;     // four cells of one byte know more
  uint16_t reads_in_flight = 0;
};

// The threads of a cluster, and of each of its blocks.
void begin_block(int threads, int of_a_block);
// Of a cluster: the shared memory of this block is gone, which is a mistake if others reach for it and
// nothing says that they did so before.
void end_block(Region&, int rank);

// A barrier among these threads of the block; `all`: none is missing.
void join(std::span<const int> threads, bool all);

// The running thread publishes what it has seen under an object's address; or learns what was published.
void release(const void* object);
void acquire(const void* object);
// As release(), but of when this was alone.
void release_own(const void* object);
// An arrival at a barrier publishes no sooner than when the phase is complete.
void arrive(const void* barrier);
void complete_phase(const void* barrier);

// While it lives, "the running thread" is the engine of its warpgroup, which reads shared memory for wgmma on
// its own account: it is no barrier among the threads that issue it and wait for it.
class AsWarpgroup {
 public:
  AsWarpgroup();
  ~AsWarpgroup();
  AsWarpgroup(const AsWarpgroup&) = delete;
  AsWarpgroup& operator=(const AsWarpgroup&) = delete;
};

// The running thread's ordinary accesses, and those it has seen, are ordered before later asynchronous ones.
void fence_async();

// Accesses of the running thread to shared memory.
void read(Region&, uintptr_t address, int bytes, uint32_t pc);
void write(Region&, uintptr_t address, int bytes, uint32_t pc);

// The same of an emulated instruction that is no memory access to count (barriers in shared memory).
void read(const void* from, int bytes, const void* site);
void write(const void* to, int bytes, const void* site);

// cp.async: the running thread writes later, at the latest when it waits.
void begin_copy(void* to, int bytes, const void* site);
void end_copy(void* to, int bytes);

}  // namespace fastgemm::simt::order

namespace fastgemm::simt {

struct Barrier;

// Asynchronous engines (TMA, the shared operands of wgmma), between whose begin and end nobody may write
// these bytes, nor read them when they are being written.
void begin_async_write(void* to, int bytes, const void* site);
// Landed; whoever waits for the barrier's phase may touch the bytes.
void end_async_write(void* to, int bytes, Barrier* publishes);
void begin_async_read(const void* from, int bytes, const void* site);
void end_async_read(const void* from, int bytes);

}  // namespace fastgemm::simt
