// How long work on the CPU ends before it is done: by Ctrl-C, or because the time that it was given is over.
#pragma once

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace fastgemm {

// What a call throws that is still at work when the time limit of its thread is over.
struct TimeLimitPassed : std::runtime_error {
  TimeLimitPassed() : std::runtime_error("fastgemm: stopped, because its time limit is over") {}
};

// Gives the calls that this thread makes from now on so many seconds together. Infinity: as long as they
// take.
void set_time_limit(double seconds);

// How the program around the library ends a call. `requested` is asked on the thread that made the call, some
// 20 times a second; after it said yes, that thread calls `raise`, which throws.
struct Interruption {
  bool (*requested)();
  void (*raise)();
};
void set_interruption(const Interruption*);  // lives as long as the process

// Of one call: whether it is to stop. It belongs to the thread that makes it.
class Poll {
 public:
  // For any thread that works on the call, between blocks of work. It costs the calling thread a look at the
  // clock, 25 ns, and the others less.
  bool stopped() {
    return stopped_.load(std::memory_order_relaxed) ||
           (std::this_thread::get_id() == caller_ && is_requested());
  }
  // For the calling thread, when no other works on the call any more: throws if stopped() has been true.
  void check() const {
    if (stopped_.load(std::memory_order_relaxed)) [[unlikely]]
      raise();
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_requested();
  [[noreturn]] void raise() const;

  const std::thread::id caller_ = std::this_thread::get_id();
  std::atomic<bool> stopped_ = false;
  bool late_ = false;
  Clock::time_point next_{};  // when to ask; the first look at the clock sets it
};

}  // namespace fastgemm
