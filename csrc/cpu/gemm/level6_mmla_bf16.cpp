// Level 6 for bfloat16, dedicated units: bfmmla of aarch64 (FEAT_BF16).
//
// Level 5 widens bf16 to fp32 and multiplies 4 numbers per instruction. bfmmla multiplies 16 pairs of bf16
// and adds them to 2 x 2 fp32 sums (mmla_tile.h). This is four times the arithmetic, and half the bytes are
// packed and loaded.
//
// It does not round as fp32 does. First it adds each pair of products, then it adds their sum to the
// accumulator. If FPCR.EBF is 0, as Linux leaves it, each of these steps rounds to odd, whatever FPCR.RMode
// says: an inexact result gets an odd last bit. Subnormal inputs and results become zero, and every NaN
// becomes the default NaN. The error of rounding to odd is less than one unit in the last place, twice that
// of rounding to nearest, and it has no bias. Processors without FEAT_EBF16 have no other mode.
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
