// Level 6 where no dot-product unit serves the type: prefetch-pipelined micro-kernel.
//
// Level 5 touches its C tile when the k loop is over and waits for memory then; and where one micro-panel
// ends and the next begins, the hardware prefetchers have to start anew. Here every micro-kernel asks for
// its C tile before the loop, whose 7000 cycles cover the wait, and for the next panels while it works.
// Complex numbers have a tile of their own (complex_tile.h).
#include "cpu/gemm/complex_tile.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

template <class Packing, int MR, class Multiply>
struct Pipelined : RegisterTraits<Pipelined<Packing, MR, Multiply>, Packing, MR, 2, Multiply> {
  static FASTGEMM_INLINE void prefetch_start(const MicroTile<Pipelined>& t) {
    using Acc = Accumulator<typename Packing::Element>;
    for (int i = 0; i < t.rows; ++i)
      for (int j = 0; j < Pipelined::kNR; j += 64 / static_cast<int>(sizeof(Acc)))
        __builtin_prefetch(t.c + i * t.ldc + j, 1, 3);
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
