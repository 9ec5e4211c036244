#include "torch/patch.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

namespace fastgemm {
namespace {

std::array<std::atomic<const PatchFrame*>, 2> frames{};

// Guards all counts. fork() waits for it: if another thread held the mutex during a fork, it would stay
// locked in the child process.
std::mutex& counting() {
  static auto& mutex = *new std::mutex;
  static const int registered =
      pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  static_cast<void>(registered);
  return mutex;
}

}  // namespace

void Counts::add(What what, std::string_view op, std::string_view by, uint64_t calls) {
  std::lock_guard lock(counting());
  Rows& rows = rows_[size_t(what)];
  auto row = rows.find(op);
  if (row == rows.end()) row = rows.try_emplace(std::string(op)).first;
  const auto count = row->second.find(by);
  if (count != row->second.end())
    count->second += calls;
  else
    row->second.emplace(by, calls);
}

Counts::Rows Counts::rows(What what) const {
  std::lock_guard lock(counting());
  return rows_[size_t(what)];
}

void set_everywhere(Everywhere where, std::shared_ptr<const PatchFrame> frame) {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::shared_ptr<const PatchFrame>>;
  std::lock_guard lock(mutex);
  frames[size_t(where)].store(frame.get(), std::memory_order_release);
  if (frame) kept->push_back(std::move(frame));
}

const PatchFrame* everywhere(Everywhere where) {
  return frames[size_t(where)].load(std::memory_order_acquire);
}

}  // namespace fastgemm
