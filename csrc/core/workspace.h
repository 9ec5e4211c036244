// Scratch memory for CPU kernels, kept from call to call. A fresh block of 1 MiB costs 256 page faults, about
// the time of a 256 x 256 product.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace fastgemm {

// Gives out parts of one growing block per thread. Its memory is free again when it goes out of scope. The
// thread keeps the block if it has at most kKept bytes.
class Workspace {
 public:
  static constexpr size_t kKept = size_t{256} << 20;

  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  void* allocate(size_t bytes);  // 64-byte aligned; throws std::bad_alloc

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  struct Block {
    Memory data;
    size_t size = 0;    // bytes
    size_t used = 0;    // given out
    size_t wanted = 0;  // bytes requested by all scopes that are open, from this block or from overflow_
    size_t next = 0;    // the size that the last calls would have needed
  };
  static Memory fresh(size_t bytes);
  static thread_local Block block;

  size_t mark_;  // Block::used when this scope began
  std::vector<Memory> overflow_;
};

}  // namespace fastgemm
