// How much scratch memory a call may use.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <string>
#include <utility>

namespace fastgemm {

inline constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

// The bytes of scratch memory that any one call in this process may use from now on.
size_t workspace_limit();
void set_workspace_limit(size_t);

// Thrown by Context::allocate. Launchers do not catch it, and they allocate before they write the result, so
// that another kernel can still be tried.
class OutOfWorkspace : public std::bad_alloc {
 public:
  OutOfWorkspace(size_t needed, std::string why) : needed_(needed), why_(std::move(why)) {}
  const char* what() const noexcept override { return why_.c_str(); }
  size_t needed() const { return needed_; }  // all bytes of the call, including the request that was refused

 private:
  size_t needed_;
  std::string why_;
};

// Adds up the memory that the kernel of a call requests, and refuses what exceeds the limit.
class Budget {
 public:
  void take(size_t bytes) {
    taken_ = bytes > kNoLimit - taken_ ? kNoLimit : taken_ + bytes;
    if (taken_ > limit_)
      throw OutOfWorkspace(taken_, "no more than " + std::to_string(limit_) + " bytes are allowed");
  }
  size_t taken() const { return taken_; }
  void start_over() { taken_ = 0; }
  void start_over(size_t limit) {
    limit_ = limit;
    taken_ = 0;
  }

 private:
  size_t limit_ = workspace_limit(), taken_ = 0;
};

}  // namespace fastgemm
