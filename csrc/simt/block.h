// The scheduler: runs the blocks (or clusters) of a grid one after the other, and their threads as fibers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "simt/fiber.h"
#include "simt/host.h"

namespace fastgemm::simt::runtime {

inline constexpr int kBarriers = 16;

class Stacks;

enum class State : uint8_t { ready, at_barrier, in_warp, in_warpgroup, waiting, yielded, done };

struct Thread {
  Fiber fiber;
  dim3 index, block;
  int rank;  // of the block in its cluster
  State state;
  const char* waits_for;
  const void* site;              // the place in the kernel where it waits
  int barrier, barrier_threads;  // at_barrier
  uint32_t mask;                 // in_warp
  void* record;
  Exchange exchange;
  WarpgroupExchange warpgroup_exchange;  // in_warpgroup
  bool (*holds)(const void*);            // waiting
  const void* argument;
  bool arrived;  // at the cluster's barrier, in this phase of it
  uint64_t cluster_phase;
  int registers;  // 0: as many as the kernel began with
};

// A block, or a cluster of blocks.
class Block {
 public:
  void run_grid(const char* kernel, dim3 grid, dim3 block, int cluster, size_t shared_bytes,
                const Body& body);
  void refuse_within_launch(const char* kernel) const;

  Thread& current() { return *current_; }
  bool inside() const { return current_ != nullptr; }
  int current_index() const { return int(current_ - threads_.data()); }
  dim3 thread_place() const { return current_ ? current_->index : dim3(0, 0, 0); }
  dim3 place() const {
    return current_ ? current_->block : dim3(place_.x + unsigned(rank_at_barriers_), place_.y, place_.z);
  }
  dim3 size() const { return size_; }
  dim3 grid() const { return grid_; }
  bool holds_stack(uintptr_t a) const { return a - stacks_begin_ < stacks_bytes_; }
  [[noreturn]] void stop(const std::string& what);
  void suspend(State state, const char* waits_for, const void* site = nullptr) {
    current_->state = state, current_->waits_for = waits_for, current_->site = site;
    current_->fiber.suspend();
  }
  int warpgroups() const { return int(threads_.size()) / kWarpgroup; }
  int rank() const { return current_->rank; }
  int cluster() const { return cluster_; }
  void* shared(int rank) const { return shared_.get() + size_t(rank) * shared_pitch(); }
  size_t shared_bytes() const { return shared_bytes_; }
  void set_registers(int count, const void* site);
  void arrive_at_cluster(const void* site);
  void wait_for_cluster(const void* site);
  struct Load {
    const void* to;
    std::function<void()> land;
    const void* site;
  };
  void land_later(Load load) { in_flight_.push_back(std::move(load)); }
  std::string where() const;  // names kernel and block, for messages

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
  bool release_barriers(int rank);
  void release_barrier(int rank, int id, bool everyone);
  void complete_cluster_barrier();
  void end_block(int rank);
  void check_same_line(const Thread& t, const void* site);
  void land_one();
  [[noreturn]] void deadlock() const;
  int alive() const;
  std::span<Thread> of_block(int rank) {
    return std::span(threads_).subspan(size_t(rank * block_threads_), size_t(block_threads_));
  }
  // There is a gap after the shared memory of each block.
  size_t shared_pitch() const {
    return (shared_bytes_ + 2 * kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  }
  bool any(State state) const;
  static void thread_main(void* self);

  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kSharedAlign); }
  };
  static constexpr size_t kSharedAlignment = 1024;
  static constexpr std::align_val_t kSharedAlign{kSharedAlignment};

  const char* kernel_ = "";
  dim3 grid_, size_, place_;
  int cluster_ = 1, block_threads_ = 0, rank_at_barriers_ = 0;
  uint64_t cluster_phase_ = 0;
  // Threads that arrived at the cluster's barrier in this phase; threads that returned; threads that returned
  // and did not arrive in this phase.
  int cluster_arrivals_ = 0, returned_ = 0, excused_ = 0;
  const Body* body_ = nullptr;
  std::unique_ptr<Stacks> stacks_;
  uintptr_t stacks_begin_ = 0, stacks_bytes_ = 0;
  std::vector<Thread> threads_;
  Thread* current_ = nullptr;  // the one that runs or leads a collective operation
  bool on_fiber_ = false;
  std::unique_ptr<std::byte, Free> shared_;
  size_t shared_bytes_ = 0;
  std::vector<Load> in_flight_;
  std::exception_ptr error_;
  Poll* poll_ = nullptr;   // of the current launch
  bool backwards_ = true;  // the order in which warps and lanes run, changed from block to block
};

std::string text(const dim3& d);

}  // namespace fastgemm::simt::runtime
