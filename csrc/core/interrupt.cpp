#include "core/interrupt.h"

#include <algorithm>
#include <cmath>

namespace fastgemm {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Clock::duration kInterval = 50ms;
// Asking may have to wait for Python's interpreter lock. It therefore gets at most a twentieth of the time.
constexpr int kShare = 20;

std::atomic<const Interruption*> interruption = nullptr;
thread_local Clock::time_point limit = Clock::time_point::max();

}  // namespace

void set_time_limit(double seconds) {
  constexpr double kForEver = 1e9;
  limit = seconds < kForEver
              ? Clock::now() +
                    std::chrono::round<Clock::duration>(std::chrono::duration<double>(std::fmax(seconds, 0)))
              : Clock::time_point::max();
}

void set_interruption(const Interruption* given) { interruption = given; }

void raise_pending() {
  if (const Interruption* program = interruption) program->raise_pending();
}

bool Poll::is_requested() {
  const Clock::time_point now = Clock::now();
  if (now >= limit) return late_ = stopped_ = true;
  if (now < next_) return false;
  const Interruption* program = interruption;
  if (next_ == Clock::time_point{} || !program) {
    next_ = now + kInterval;
    return false;
  }
  stopped_ = program->requested();
  const Clock::time_point then = Clock::now();
  next_ = then + std::max(kInterval, kShare * (then - now));
  return stopped_;
}

void Poll::raise() const {
  if (!late_) interruption.load()->raise();
  throw TimeLimitPassed();
}

}  // namespace fastgemm
