// Context for code that is compiled per instruction set: std::function and Context's inline members stay in
// a plain translation unit, so that no copy of them with AVX-512 instructions exists.
#pragma once

#include <type_traits>

#include "core/context.h"

namespace fastgemm {

int threads_of(const Context& ctx);
void parallel(Context& ctx, int64_t tasks, void (*task)(void* closure, int64_t index), void* closure);

// `body` is any callable taking the task's index. It outlives the call, so a pointer to it is enough.
template <class Body>
inline __attribute__((always_inline)) void parallel(Context& ctx, int64_t tasks, Body&& body) {
  using Closure = std::remove_reference_t<Body>;
  if (tasks == 1) return body(int64_t{0});
  parallel(ctx, tasks, [](void* c, int64_t i) { (*static_cast<Closure*>(c))(i); }, &body);
}

}  // namespace fastgemm
