// Level 6 for bfloat16, dedicated units: bfmmla of aarch64 (FEAT_BF16).
//
// Level 5 widens bf16 to fp32 and multiplies 4 numbers an instruction. bfmmla multiplies 16 pairs of bf16 and
// adds them into 2 x 2 fp32 sums (mmla_tile.h): four times the arithmetic, and half the bytes packed and
// loaded.
//
// It does not round as fp32 does. Each pair of products is added first, then that sum to the sum so far, and
// where FPCR.EBF is 0, as Linux leaves it, every one of these steps rounds to odd (an inexact result gets an
// odd last bit) whatever FPCR.RMode says, takes subnormal numbers for zero and makes subnormal results zero,
// and every NaN is the default NaN. Rounding to odd errs by less than a unit in the last place, twice what
// rounding to nearest does, and to either side alike. Processors without FEAT_EBF16 have no other mode.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/mmla_tile.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

struct BFloat16Matrix {
  static FASTGEMM_INLINE Vector<float> apply(Vector<float> sums, Vector<uint64_t> a, Vector<uint64_t> b) {
    return (Vector<float>)vbfmmlaq_f32((float32x4_t)sums, (bfloat16x8_t)a, (bfloat16x8_t)b);
  }
};

}  // namespace
}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_mmla_bf16(const GemmProblem& p, Context& ctx) {
  using namespace FASTGEMM_ISA;
  run_engine<MmlaTraits<BFloat16, BFloat16Matrix>>(p, ctx);
}
}  // namespace fastgemm
