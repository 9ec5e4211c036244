// Scratch memory for CPU kernels, kept from call to call: a fresh 1 MiB block costs 256 page faults, about
// as long as a 256 x 256 product.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

namespace fastgemm {

// Hands out pieces of one growing block per thread. Everything it gave out is free again when it goes out
// of scope; the block stays with the thread up to kKept bytes.
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
    size_t used = 0;    // handed out
    size_t wanted = 0;  // asked for by the scopes in progress, in the block or not
    size_t next = 0;    // the size that the last calls would have fitted into
  };
  static Memory fresh(size_t bytes);
  static thread_local Block block;

  size_t mark_;  // where the thread's block was when this scope began
  std::vector<Memory> overflow_;
};

}  // namespace fastgemm
