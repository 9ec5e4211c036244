// The scheduler: runs the blocks of a grid one after the other, and the threads of a block as fibers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "simt/fiber.h"
#include "simt/runtime.h"

namespace fastgemm::simt::runtime {

inline constexpr int kBarriers = 16;

class Stacks;

enum class State : uint8_t { ready, at_barrier, in_warp, in_warpgroup, waiting, yielded, done };

struct Thread {
  Fiber fiber;
  dim3 index;
  State state;
  const char* waits_for;
  const void* site;              // in the kernel, where it waits
  int barrier, barrier_threads;  // at_barrier
  uint32_t mask;                 // in_warp
  void* record;
  Exchange exchange;
  WarpgroupExchange warpgroup_exchange;  // in_warpgroup
  bool (*holds)(const void*);            // waiting
  const void* argument;
};

class Block {
 public:
  void run_grid(const char* kernel, dim3 grid, dim3 block, size_t shared_bytes,
                const std::function<void()>& body);

  Thread& current() { return *current_; }
  bool inside() const { return current_ != nullptr; }
  int current_index() const { return int(current_ - threads_.data()); }
  dim3 thread_place() const { return current_ ? current_->index : dim3(0, 0, 0); }
  dim3 place() const { return place_; }
  dim3 size() const { return size_; }
  dim3 grid() const { return grid_; }
  bool holds_stack(uintptr_t a) const { return a - stacks_begin_ < stacks_bytes_; }
  [[noreturn]] void stop(const std::string& what);
  void suspend(State state, const char* waits_for, const void* site = nullptr) {
    current_->state = state, current_->waits_for = waits_for, current_->site = site;
    current_->fiber.suspend();
  }
  int warpgroups() const { return int(threads_.size()) / kWarpgroup; }
  void* shared() const { return shared_.get(); }
  size_t shared_bytes() const { return shared_bytes_; }
  struct Load {
    std::function<void()> land;
    const void* site;
  };
  void land_later(Load load) { in_flight_.push_back(std::move(load)); }
  std::string where() const;  // kernel and block, in words

  Block();
  ~Block();

 private:
  void run_blocks();
  void begin_block(bool counted);
  void run_block();
  void start(int thread);
  bool run_warp(int first, int last);
  void run_thread(Thread& t);
  bool release_warp(int first, int last);
  bool release_warpgroups();
  bool release_barriers();
  void release_barrier(int id, bool everyone);
  void check_same_line(const Thread& t, const void* site);
  void land_one();
  [[noreturn]] void deadlock() const;
  int alive() const;
  bool any(State state) const;
  static void thread_main(void* self);

  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kSharedAlign); }
  };
  static constexpr std::align_val_t kSharedAlign{1024};

  const char* kernel_ = "";
  dim3 grid_, size_, place_;
  const std::function<void()>* body_ = nullptr;
  std::unique_ptr<Stacks> stacks_;
  uintptr_t stacks_begin_ = 0, stacks_bytes_ = 0;
  std::vector<Thread> threads_;
  Thread* current_ = nullptr;  // that runs, or leads a collective operation
  bool on_fiber_ = false;
  std::unique_ptr<std::byte, Free> shared_;
  size_t shared_bytes_ = 0;
  std::vector<Load> in_flight_;
  std::exception_ptr error_;
  bool backwards_ = true;  // the order in which warps and lanes run, changed from block to block
};

std::string text(const dim3& d);

}  // namespace fastgemm::simt::runtime
