// Level 6 for int8, dedicated units: smmla of aarch64 (FEAT_I8MM).
//
// Level 5 widens int8 to int16 and takes four instructions for 8 products. smmla multiplies 32 pairs of int8
// and adds them to 2 x 2 int32 sums (mmla_tile.h), modulo 2^32 and without saturation. Both factors are
// signed, so it needs no offset and no column sums, and the result is exact for every int8, including -128.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/mmla_tile.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

struct Int8Matrix {
  static FASTGEMM_INLINE Vector<uint32_t> apply(Vector<uint32_t> sums, Vector<uint64_t> a,
                                                Vector<uint64_t> b) {
    return (Vector<uint32_t>)vmmlaq_s32((int32x4_t)sums, (int8x16_t)a, (int8x16_t)b);
  }
};

}  // namespace
}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_mmla_int8(const GemmProblem& p, Context& ctx) {
  using namespace FASTGEMM_ISA;
  run_engine<MmlaTraits<int8_t, Int8Matrix>>(p, ctx);
}
}  // namespace fastgemm
