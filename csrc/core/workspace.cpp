#include "core/workspace.h"

#include <algorithm>
#include <cstdint>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace fastgemm {
namespace {

size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

}  // namespace

thread_local Workspace::Block Workspace::block;

// Blocks of 1 MiB and more use pages of 2 MiB, if the system has them. With pages of 4 KiB, panels are
// scattered over the sets of the L2 cache, and some of their lines evict each other. A bfloat16 product of
// 1024 takes a fifth less time with large pages.
Workspace::Memory Workspace::fresh(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool large = bytes >= kHugePage / 2;
  const size_t align = large ? kHugePage : 64, size = round_up(bytes, align);
  Memory data(static_cast<std::byte*>(std::aligned_alloc(align, size)));
  if (!data) throw std::bad_alloc();
#if defined(__linux__)
  if (large) madvise(data.get(), size, MADV_HUGEPAGE);
#endif
  return data;
}

Workspace::Workspace() : mark_(block.used) {}

Workspace::~Workspace() {
  block.used = mark_;
  if (mark_ != 0) return;  // an outer scope still uses parts of the block
  // Keep one block that is large enough for the same call next time.
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
  bytes = round_up(std::max<size_t>(bytes, 1), 64);
  block.wanted += bytes;
  if (!block.data) {
    const size_t size = std::max(bytes, block.next);
    block = Block{fresh(size), size, 0, block.wanted, size};
  }
  if (block.used + bytes <= block.size) {
    void* p = block.data.get() + block.used;
    block.used += bytes;
    return p;
  }
  overflow_.push_back(fresh(bytes));
  return overflow_.back().get();
}

}  // namespace fastgemm
