// The memory of the simulated GPU. Every address that a kernel uses must be in one of these regions: a buffer
// in global memory, a shared variable, or dynamic shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "simt/order.h"
#include "simt/session.h"

namespace fastgemm::simt {

struct Region {
  uintptr_t begin = 0, end = 0;
  Space space = Space::global;
  std::string name;
  bool writable = true;
  // One per byte. Empty if all bytes were initialized from the start.
  std::vector<uint8_t> initialized;
  std::vector<bool> touched;       // global: 32-byte sectors that counted blocks of this launch accessed
  std::vector<order::Cell> cells;  // shared: one per 4 bytes
  std::vector<order::Cell> cells_of_bytes;
  uint64_t block = 0;  // shared: the block for which it was last cleared
  int rank = -1;       // dynamic shared memory: rank of its block in the cluster
  bool ended = false;  // that block has ended

  bool contains(uintptr_t a) const { return a - begin < end - begin; }
  size_t offset(uintptr_t a) const { return a - begin; }
};

namespace memory {

// Adds a buffer; buffers that overlap become one region.
void add_global(const void* data, size_t bytes, const char* name, bool writable, bool initialized);
void remove_all_global();

// Starts a launch: finds the shared variables of the module, and adds the dynamic shared memory of `blocks`
// blocks. It has this size in each block, and `pitch` bytes lie between the starts of two.
void begin_launch(void* dynamic_shared, size_t bytes, int blocks, size_t pitch);
void begin_block();
void end_launch();

// The region that holds an address. Null if there is none, or if kernels are not instrumented.
Region* find(uintptr_t address);
// Whether an address is in the segment of shared variables, gaps included.
bool among_shared_variables(uintptr_t address);
// Describes the regions nearest to an address, for messages.
std::string nearest(uintptr_t address);

void touch(Region&, uintptr_t address, size_t bytes);  // for Launch::buffers

}  // namespace memory
}  // namespace fastgemm::simt
