#include "core/workspace.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <cstdint>

namespace fastgemm {
namespace {

constexpr size_t kAlign = 64;
size_t round_up(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

std::byte* aligned(std::byte* p) {
  return reinterpret_cast<std::byte*>(round_up(reinterpret_cast<uintptr_t>(p)));
}

struct Block {
  std::unique_ptr<std::byte[]> data;
  size_t size = 0;    // usable bytes behind the aligned start
  size_t used = 0;    // handed out
  size_t wanted = 0;  // asked for by the scopes in progress, in the block or not
  size_t next = 0;    // the size that the last calls would have fitted into
};
thread_local Block block;

// Large blocks ask for pages of 2 MiB: a product reads packed operands of several MiB over and over, and a
// miss of the TLB costs most in a virtual machine.
std::unique_ptr<std::byte[]> fresh(size_t bytes) {
  auto block = std::make_unique_for_overwrite<std::byte[]>(bytes + kAlign);
#if defined(__linux__)
  constexpr uintptr_t kHugePage = 2 << 20;
  const uintptr_t begin = (reinterpret_cast<uintptr_t>(block.get()) + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(block.get()) + bytes) / kHugePage * kHugePage;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);  // a hint: may fail
#endif
  return block;
}

}  // namespace

Workspace::Workspace() : mark_(block.used) {}

Workspace::~Workspace() {
  block.used = mark_;
  if (mark_ != 0) return;  // an outer scope still holds pieces of the block
  // Keep one block that the same call would fit into next time.
  const size_t size = std::max(block.size, block.wanted);
  if (size > kKept) {
    block = Block{};
  } else if (size > block.size) {
    block = Block{};
    block.next = size;
  }
  block.wanted = 0;
}

void* Workspace::allocate(size_t bytes) {
  bytes = round_up(std::max<size_t>(bytes, 1));
  block.wanted += bytes;
  if (!block.data) {
    const size_t size = std::max(bytes, block.next);
    block = Block{fresh(size), size, 0, block.wanted, size};
  }
  if (block.used + bytes <= block.size) {
    void* p = aligned(block.data.get()) + block.used;
    block.used += bytes;
    return p;
  }
  overflow_.push_back(fresh(bytes));
  return aligned(overflow_.back().get());
}

}  // namespace fastgemm
