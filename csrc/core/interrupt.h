// Ends long work on the CPU early: on Ctrl-C, or when its time limit has passed.
#pragma once

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

namespace fastgemm {

// Thrown by a call that is still running when the time limit of its thread has passed.
struct TimeLimitPassed : std::runtime_error {
  TimeLimitPassed() : std::runtime_error("fastgemm: stopped, because its time limit is over") {}
};

// From now on, all calls of this thread together may take this many seconds. Infinity: no limit.
void set_time_limit(double seconds);

// How the host program ends a call. The calling thread calls `requested` about 20 times a second. When it
// returns true, that thread calls `raise`, which throws. `raise_pending` throws the exception that the host
// program's own code left pending while it ran within a call, or returns if the call cannot pass it on.
struct Interruption {
  bool (*requested)();
  void (*raise)();
  void (*raise_pending)();
};
void set_interruption(const Interruption*);  // it must live as long as the process

// Calls `raise_pending`, if an interruption is set.
void raise_pending();

// Tells whether one call must stop. It belongs to the thread that made the call.
class Poll {
 public:
  // Any thread that works on the call asks this between blocks of work. The calling thread reads the clock,
  // which costs 25 ns; the others pay less.
  bool stopped() {
    return stopped_.load(std::memory_order_relaxed) ||
           (std::this_thread::get_id() == caller_ && is_requested());
  }
  // The calling thread calls this when no other thread works on the call any more. Throws if stopped() was
  // true.
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
  Clock::time_point next_{};  // when to ask next; set when the clock is first read
};

}  // namespace fastgemm
