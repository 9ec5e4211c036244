#include "core/mirror.h"

#include "cpu/gemm/mirror_band.h"
#include "cpu/per_isa.h"

namespace fastgemm::cpu {

// Task i gets the i-th band and the i-th from the end, so that all tasks have the same amount of work.
void mirror(const Mirror& m, Context& context) {
  if (m.batch * m.n == 0) return;
  static constexpr void (*kBands[])(const Mirror&, int64_t, int64_t) = {FASTGEMM_PER_ISA(mirror_band)};
  const auto fill = kBands[static_cast<int>(cpu_features().isa())];
  const int64_t bands = (m.n + kMirrorBand - 1) / kMirrorBand, tasks = (bands + 1) / 2;
  context.parallel(m.batch * tasks, [&](int64_t task) {
    const int64_t first = task % tasks, last = bands - 1 - first;
    fill(m, task / tasks, first * kMirrorBand);
    if (last != first) fill(m, task / tasks, last * kMirrorBand);
  });
}

}  // namespace fastgemm::cpu
