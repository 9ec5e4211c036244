// Level 6 for bfloat16, dedicated units: the pair product of AVX512-BF16.
//
// Level 5 widens bf16 to fp32 and multiplies at the rate of fp32. vdpbf16ps multiplies 32 pairs of bf16 and
// adds them to 16 fp32 accumulators in one instruction. This is twice the arithmetic, and half the bytes are
// packed and loaded. Zen 4 starts one such instruction per cycle, so even an 8 x 32 tile reaches 99 % of the
// unit's rate. The tile is 12 x 32 (24 products for 14 loads), because packing and storing then take the
// least time. The unit treats subnormal numbers as zero.
//
// 8-bit floating-point numbers with scales of blocks are multiplied as bfloat16, too: the tile is stored for
// each part of k, times the scales of its rows and columns, and stays in the L1 cache between parts.
#include "core/part_scales.h"
#include "cpu/gemm/dot_packing.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

struct DotBFloat16 : InOneVector {
  static FASTGEMM_INLINE Vector<float> apply(Vector<float> acc, Vector<uint32_t> a, Vector<uint32_t> b) {
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
  }
};

struct DotBFloat16Traits : RegisterTraits<DotBFloat16Traits, BFloat16Pairs, 12, 2, DotBFloat16> {
  // The unit never waits for loads, even if both panels are read from L2. So a k-block may be deep: for k up
  // to 4096, sums stay in registers and C is written once.
  static constexpr int kKC = 4096;
  static constexpr bool kReadsRowsOfA = true;
};

struct ScaledDotTraits : RegisterTraits<ScaledDotTraits, BFloat16Pairs, 12, 2, DotBFloat16> {
  static constexpr int kKC = DotBFloat16Traits::kKC, kMostOfPart = 128;
  static FASTGEMM_INLINE Vector<float> scaled(const MicroTile<ScaledDotTraits>& t, Vector<float> sums, int i,
                                              int j) {
    return sums * t.row_scales[i] * load<Vector<float>>(t.column_scales + j);
  }
};

}  // namespace
}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_dot_bf16(const GemmProblem& p, Context& ctx) {
  using namespace FASTGEMM_ISA;
  if (scales_parts(p)) {
    GemmProblem q = p;
    q.scales_a = cpu::row_scales_of_parts(p, ctx), q.scales_b = cpu::column_scales_of_parts(p, ctx);
    return run_five_loops<ScaledDotTraits>(q, ctx, threads_for(p, ctx));
  }
  run_engine<DotBFloat16Traits>(p, ctx);
}
}  // namespace fastgemm
