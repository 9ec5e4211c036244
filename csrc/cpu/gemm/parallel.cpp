#include "cpu/gemm/parallel.h"

namespace fastgemm {

int threads_of(const Context& ctx) { return ctx.threads(); }
bool stopped(Context& ctx) { return ctx.stopped(); }

void parallel(Context& ctx, int64_t tasks, void (*task)(void*, int64_t), void* closure) {
  ctx.parallel(tasks, [task, closure](int64_t i) { task(closure, i); });
}

}  // namespace fastgemm
