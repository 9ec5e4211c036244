// Context for code that is compiled per instruction set: std::function and Context's inline members stay in
// a plain translation unit, so that no copy of them with AVX-512 instructions exists.
#pragma once

#include <type_traits>

#include "core/context.h"

namespace fastgemm {

int threads_of(const Context& ctx);
bool stopped(Context& ctx);
void parallel(Context& ctx, int64_t tasks, void (*task)(void* closure, int64_t index), void* closure);

// `body` is any callable that takes the task's index. It outlives the call, so a pointer to it is enough.
template <class Body>
inline __attribute__((always_inline)) void parallel(Context& ctx, int64_t tasks, Body&& body) {
  using Closure = std::remove_reference_t<Body>;
  if (tasks == 1) return body(int64_t{0});
  parallel(ctx, tasks, [](void* c, int64_t i) { (*static_cast<Closure*>(c))(i); }, &body);
}

// Tells a loop when to check whether the call is stopped. It is due after so much work that the check costs
// almost nothing: 0.1 ms of the fastest kernel on a core, 20 ms of the slowest.
struct Pace {
  static constexpr int64_t kMultiplyAdds = int64_t{1} << 24;
  int64_t done = 0;

  __attribute__((always_inline)) bool due(int64_t multiply_adds) {
    done += multiply_adds;
    if (done < kMultiplyAdds) [[likely]]
      return false;
    done = 0;
    return true;
  }
};

}  // namespace fastgemm
