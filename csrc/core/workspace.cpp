#include "core/workspace.h"

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
  size_t size = 0;    // usable bytes after the aligned start
  size_t used = 0;    // bytes given out
  size_t wanted = 0;  // bytes that open scopes requested, in the block or beside it
  size_t next = 0;    // the size that the last calls would have needed
};
thread_local Block block;

std::unique_ptr<std::byte[]> fresh(size_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(bytes + kAlign);
}

}  // namespace

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
