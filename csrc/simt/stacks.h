// The stacks of the simulated threads.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace fastgemm::simt::runtime {

inline constexpr size_t kStackBytes = 256 * 1024, kGuardBytes = 4096;

// One stack for each thread of the largest block or cluster so far, kept until the process ends. Memory is
// used only for pages that a fiber touches. Below each stack is a guard page.
class Stacks {
 public:
  explicit Stacks(int count) : count_(count) {
    void* p =
        mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(p);
    for (int i = 0; i < count; ++i)
      if (mprotect(base_ + size_t(i) * kStackBytes, kGuardBytes, PROT_NONE) != 0) {
        munmap(base_, bytes());
        throw std::bad_alloc();
      }
  }
  ~Stacks() { munmap(base_, bytes()); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  int count() const { return count_; }
  std::byte* of(int thread) const { return base_ + size_t(thread) * kStackBytes + kGuardBytes; }
  uintptr_t begin() const { return reinterpret_cast<uintptr_t>(base_); }
  size_t bytes() const { return size_t(count_) * kStackBytes; }
  static constexpr size_t kUsable = kStackBytes - kGuardBytes;

 private:
  int count_;
  std::byte* base_;
};

}  // namespace fastgemm::simt::runtime
