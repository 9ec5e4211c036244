// Level 6 for bfloat16, dedicated units: the pair product of AVX512-BF16.
//
// Level 5 widens bf16 to fp32 and multiplies at the rate of fp32. vdpbf16ps multiplies 32 pairs of bf16 and
// adds them to 16 fp32 accumulators in one instruction. This is twice the arithmetic, and half the bytes are
// packed and loaded. Zen 4 starts one such instruction per cycle, so even an 8 x 32 tile reaches 99 % of the
// unit's rate. The tile is 12 x 32 (24 products for 14 loads), because packing and storing then take the
// least time. The unit treats subnormal numbers as zero.
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
};

}  // namespace
}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_dot_bf16(const GemmProblem& p, Context& ctx) {
  FASTGEMM_ISA::run_engine<FASTGEMM_ISA::DotBFloat16Traits>(p, ctx);
}
}  // namespace fastgemm
