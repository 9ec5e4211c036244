// Level 6 for int8, dedicated units: the four-way byte product of AVX512-VNNI.
//
// Level 5 widens int8 to int16 and adds pairs. vpdpbusd multiplies 64 bytes and adds them, four at a time,
// into 16 int32 accumulators. Its first factor is unsigned: A is packed as a + 128 (one bit flipped), and
//
//   sum (a + 128) * b = sum a * b + 128 * sum b
//
// So each panel of B also stores -128 times its column sums, and the accumulators start from these. All
// arithmetic is modulo 2^32: vpdpbusd, unlike vpdpbusds, does not saturate, and adds its four 16-bit products
// exactly. The result is therefore exact for every int8, including -128.
#include "cpu/gemm/dot_packing.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/micro_kernel.h"
#include "cpu/gemm/run_engine.h"

namespace fastgemm::FASTGEMM_ISA {
namespace {

FASTGEMM_INLINE Vector<uint32_t> dot(Vector<uint32_t> acc, Vector<uint32_t> a, Vector<uint32_t> b) {
  return (Vector<uint32_t>)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
}

struct DotInt8 : InOneVector {
  static FASTGEMM_INLINE Vector<uint32_t> apply(Vector<uint32_t> acc, Vector<uint32_t> a,
                                                Vector<uint32_t> b) {
    return dot(acc, a, b);
  }
};

struct DotInt8Traits : RegisterTraits<DotInt8Traits, Int8Quads<0>, 12, 2, DotInt8> {
  using Base = RegisterTraits<DotInt8Traits, Int8Quads<0>, 12, 2, DotInt8>;
  static constexpr int kKC = 8192;  // as many bytes of k as dot_bf16 has
  static constexpr bool kReadsRowsOfA = true;

  static FASTGEMM_INLINE Vector<uint32_t> packed(Vector<uint32_t> a) { return a ^ Int8Quads<0x80>::kFlip; }
  static void pack_a(uint32_t* panel, const int8_t* a, int64_t rs, int64_t ks, int64_t rows, int64_t k) {
    pack_panel<Int8Quads<0x80>, kMR>(panel, a, rs, ks, rows, k);
  }
  // -128 times the column sums are stored behind the k-groups.
  static int64_t panel_units_b(int64_t k) { return Base::panel_units_b(k) + kNR; }
  static void pack_b(uint32_t* panel, const int8_t* b, int64_t cs, int64_t ks, int64_t cols, int64_t k) {
    Base::pack_b(panel, b, cs, ks, cols, k);
    const int64_t groups = ceil_div(k, kGroup);
    for (int j = 0; j < kNR; j += kLanes<uint32_t>) {
      Vector<uint32_t> sum = {};
      for (int64_t g = 0; g < groups; ++g)
        sum = dot(sum, broadcast<Vector<uint32_t>>(0x01010101u), load<Vector<uint32_t>>(panel + g * kNR + j));
      store(panel + groups * kNR + j, sum * -128u);
    }
  }
  static FASTGEMM_INLINE Vector<uint32_t> initial(const MicroTile<DotInt8Traits>& t, int j) {
    return load<Vector<uint32_t>>(t.b + ceil_div(t.k, kGroup) * kNR + j * kLanes<uint32_t>);
  }
};

}  // namespace
}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_dot_int8(const GemmProblem& p, Context& ctx) {
  FASTGEMM_ISA::run_engine<FASTGEMM_ISA::DotInt8Traits>(p, ctx);
}
}  // namespace fastgemm
