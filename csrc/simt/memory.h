// The address spaces of the simulated GPU. Every address that a kernel uses must lie in a region that is
// known here: a buffer in global memory, a shared variable, or dynamic shared memory.
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
  // One for each byte, empty when all of them hold values from the start.
  std::vector<uint8_t> initialized;
  std::vector<bool> touched;       // global: 32-byte sectors of this launch that counted blocks accessed
  std::vector<order::Cell> cells;  // shared: one for each 4 bytes
  std::vector<order::Cell> cells_of_bytes;
  uint64_t block = 0;  // shared: for which block it was cleared last
  int rank = -1;       // dynamic shared memory: of the block with this rank in its cluster
  bool ended = false;  // which has ended

  bool contains(uintptr_t a) const { return a - begin < end - begin; }
  size_t offset(uintptr_t a) const { return a - begin; }
};

namespace memory {

// Makes a buffer known, together with those that it overlaps.
void add_global(const void* data, size_t bytes, const char* name, bool writable, bool initialized);
void remove_all_global();

// For a launch: finds the module's shared variables; dynamic shared memory of this size, of so many blocks at
// this distance.
void begin_launch(void* dynamic_shared, size_t bytes, int blocks, size_t pitch);
void begin_block();
void end_launch();

// Null outside every region, and when kernels are not instrumented.
Region* find(uintptr_t address);
// Also between them.
bool among_shared_variables(uintptr_t address);
// The region that ends last before an address, or begins first after it: for messages.
std::string nearest(uintptr_t address);

void touch(Region&, uintptr_t address, size_t bytes);  // for Launch::buffers

}  // namespace memory
}  // namespace fastgemm::simt
