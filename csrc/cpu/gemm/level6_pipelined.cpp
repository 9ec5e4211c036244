// Level 6 for types without a dot-product unit: a micro-kernel with prefetches.
//
// Level 5 waits for memory in two places. Both micro-panels together are larger than the L1 cache, so each
// tile reads them from L2 again. After the k loop, it waits for the C tile. Here each step of the loop
// prefetches what is multiplied 16 steps later, and the last steps prefetch the rows of C. The first steps
// must not do that: 28 lines requested from L3 at once would take all line fill buffers (16 in Intel's
// cores), and the panels would have to wait.
//
// With the prefetches the loop is as fast from L2 as from L1. So a k-block may be deeper if L2 can hold it,
// and C is read and written less often.
//
// To pack A costs as much time as some 8 to 20 columns of C. For few columns, contiguous rows of A are read
// in place (Engine::reads_rows_of_a): on a Zen 4, 2048 x 64 x 1000 takes 2.29 ms in place of 2.56.
//
// Complex numbers have a tile of their own (complex_tile.h).
#include "cpu/gemm/complex_tile.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"
#include "cpu/gemm/small_routes.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Packing, int MR, class Multiply>
struct Pipelined : RegisterTraits<Pipelined<Packing, MR, Multiply>, Packing, MR, 2, Multiply> {
  static constexpr int kAhead = 16, kLastSteps = 32, kLine = 64;
  // B is packed 16 rows at a time, over all panels. If one panel were packed after another, each row would be
  // in another page.
  static constexpr int kPackDepth = 16 * Pipelined::kGroup;
  static constexpr bool kReadsRowsOfA = Pipelined::kReadsInPlace;

  // With a large L2, 4 KiB of a row. In float64 this is no deeper than elsewhere: blocks of A would have
  // fewer rows, and B would be read from L3 more often.
  static int64_t k_depth() {
    const int64_t depth = Pipelined::kKC;
    return has_large_l2() ? depth * 8 / int64_t{sizeof(typename Packing::Unit)} : depth;
  }
  // On an Emerald Rapids, reading A in place gains 5 % at 300 columns, 3 % at 512, 1 to 2 % at 1000 and
  // nothing at 2000.
  static int64_t unpacked_columns() { return saves_packing() ? 1536 : 256; }
  // Prefetches all cache lines of COUNT values from p on.
  template <int COUNT, class T>
  static FASTGEMM_INLINE void prefetch(const T* p) {
#pragma GCC unroll 4
    for (int i = 0; i < COUNT; i += kLine / static_cast<int>(sizeof(T))) __builtin_prefetch(p + i, 0, 3);
  }
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_panel_a(const Unit* a) {
    prefetch<MR>(a + kAhead * MR);
  }
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_next_columns(const Unit* b) {
#pragma GCC unroll 4
    for (int i = 0; i < Pipelined::kNR; i += kLine / static_cast<int>(sizeof(Unit)))
      __builtin_prefetch(b + i, 0, 2);
  }
  template <class Unit>
  static FASTGEMM_INLINE void prefetch_rows_of_b(const Unit* b, int64_t row_stride) {
    prefetch<Pipelined::kNR>(b + kAhead * row_stride);
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
