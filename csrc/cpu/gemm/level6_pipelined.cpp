// Level 6 where no dot-product unit serves the type: prefetch-pipelined micro-kernel.
//
// Level 5 waits for memory: for both micro-panels, which together are larger than the L1 cache and come from
// L2 anew for every tile, and for its C tile when the k loop is over. Here each step of the loop asks for
// what is multiplied 16 steps later, and the last steps ask for the rows of C. Not the first: 28 lines from
// L3 at once take all buffers in which lines arrive (16 in Intel's cores), and the panels would have to wait
// for them.
//
// With this the loop runs as fast from L2 as from L1, so that a k-block may be deeper where L2 holds it, and
// C is read and written less often. Complex numbers have a tile of their own (complex_tile.h).
#include "cpu/gemm/complex_tile.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Packing, int MR, class Multiply>
struct Pipelined : RegisterTraits<Pipelined<Packing, MR, Multiply>, Packing, MR, 2, Multiply> {
  static constexpr int kAhead = 16, kLastSteps = 32, kLine = 64;
  // B is packed 16 rows at a time, over all panels: by panels, each row would be another page.
  static constexpr int kPackDepth = 16 * Pipelined::kGroup;

  static int64_t k_depth() {
    constexpr size_t kLargeL2 = 5 << 18;  // Ice Lake's 1.25 MiB
    return cpu_caches().l2 >= kLargeL2 ? 2 * Pipelined::kKC : Pipelined::kKC;
  }
  // All lines of so many values from p on.
  template <int COUNT, class T>
  static FASTGEMM_INLINE void prefetch(const T* p) {
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i += kLine / static_cast<int>(sizeof(T))) __builtin_prefetch(p + i, 0, 3);
  }
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_panels(const Unit* a, const Unit* b) {
    prefetch<MR>(a + kAhead * MR);
    prefetch<Pipelined::kNR>(b + kAhead * Pipelined::kNR);
  }
  template <class Acc>
  static FASTGEMM_INLINE void prefetch_result(const Acc* row) {
    prefetch<Pipelined::kNR>(row);
  }
};

}  // namespace

void gemm_pipelined(const GemmProblem& p, Context& ctx) {
  if (p.type == DType::bits64) return run_engine<ComplexTraits<float>>(p, ctx);
  if (p.type == DType::bits128) return run_engine<ComplexTraits<double>>(p, ctx);
  with_register_packing(p.type, [&]<class Packing, int MR, class Multiply>() {
    run_engine<Pipelined<Packing, MR, Multiply>>(p, ctx);
  });
}

}  // namespace fastgemm::FASTGEMM_ISA
