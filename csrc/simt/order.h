// Finds races: accesses of the threads of a block that are not ordered. The method is vector clocks (Lamport;
// Mattern; vector_clocks.h). Every thread has a clock, and learns the clocks of other threads at barriers. An
// access of thread t at time c is ordered before an access of thread u if u knows that t's clock is c or
// later.
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

// The recorded accesses of four bytes of shared memory: the last write, and two reads after it. Once bytes
// were accessed one by one, each byte has a cell of its own.
struct Cell {
  Stamp write, read, other_read;
  bool write_in_flight = false;
  bool ordinary = false;  // last written by a thread, not by the asynchronous proxy
  bool split = false;     // there are four cells of one byte
  uint16_t reads_in_flight = 0;
};

// Starts a block or cluster of this many threads; `of_a_block`: the threads of one block.
void begin_block(int threads, int of_a_block);
// Ends a block of a cluster: its shared memory is gone. It is an error if accesses of other blocks are not
// ordered before this.
void end_block(Region&, int rank);

// A barrier of these threads of the block; `all`: of all its threads.
void join(std::span<const int> threads, bool all);

// release: the running thread publishes the clocks that it knows, under the address of an object. acquire: it
// learns the clocks published there.
void release(const void* object);
void acquire(const void* object);
// Like release(), but publishes only the thread's own clock.
void release_own(const void* object);
// Clocks published by an arrival at a barrier can be learned when the phase is complete.
void arrive(const void* barrier);
void complete_phase(const void* barrier);

// During its lifetime, "the running thread" is the engine of its warpgroup, which reads shared memory for
// wgmma. The engine has a clock of its own, because wgmma is no barrier among the threads that issue it and
// wait for it.
class AsWarpgroup {
 public:
  AsWarpgroup();
  ~AsWarpgroup();
  AsWarpgroup(const AsWarpgroup&) = delete;
  AsWarpgroup& operator=(const AsWarpgroup&) = delete;
};

// Orders the ordinary accesses that the running thread made or knows before later asynchronous accesses.
void fence_async();

// An access of the running thread to shared memory.
void read(Region&, uintptr_t address, int bytes, uint32_t pc);
void write(Region&, uintptr_t address, int bytes, uint32_t pc);

// The same for an emulated instruction that is not counted (barriers in shared memory).
void read(const void* from, int bytes, const void* site);
void write(const void* to, int bytes, const void* site);

// cp.async: a write of the running thread that lands later, at the latest when the thread waits.
void begin_copy(void* to, int bytes, const void* site);
void end_copy(void* to, int bytes);

}  // namespace fastgemm::simt::order

namespace fastgemm::simt {

struct Barrier;

// Accesses of the asynchronous engines (TMA, and wgmma's operands in shared memory). Between begin and end
// nobody may write these bytes; if the access is a write, nobody may read them.
void begin_async_write(void* to, int bytes, const void* site);
// The bytes have landed. Threads that wait for the barrier's phase may access them afterwards.
void end_async_write(void* to, int bytes, Barrier* publishes);
void begin_async_read(const void* from, int bytes, const void* site);
void end_async_read(const void* from, int bytes);

}  // namespace fastgemm::simt
