// streamed_weights for bfloat16 by the pair product of AVX512-BF16. A vector has 32 weights, which are
// rounded to bfloat16 as in the engines. So one look-up and one product handle twice as many weights as in
// float32.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/streamed_weights.h"

namespace fastgemm::FASTGEMM_ISA {
namespace weights {

template <class>
struct NumberPairs;
struct Pairs {
  using X = BFloat16;
  using Weights = __m512i;
  using Factors = __m512i;
  using Remainder = NumberPairs<NoGroup>;
  static constexpr int kVector = 2 * N;
  static FASTGEMM_INLINE __m512i factors(const BFloat16* x) { return load<__m512i>(x); }
  static FASTGEMM_INLINE V add(V sums, __m512i weights, __m512i x) {
    return _mm512_dpbf16_ps(sums, (__m512bh)weights, (__m512bh)x);
  }
};

// A line is a vector of 16-bit lanes with four codes each.
struct NibblePairs : Pairs {
  static constexpr int kSteps = 4, kBytes = 64, kCodes = 128, kMostRows = 8;
  static constexpr bool kAlongLanes = true;
  static bool suits(int64_t group_k) { return group_k % kCodes == 0; }
  struct Group {
    __m512i table;  // twice: vpermw reads the low five bits of an index, and the fifth is of the next code
    FASTGEMM_INLINE void set(const Scales& s, int64_t g) {
      const auto rounded = _mm512_cvtneps_pbh(s.of_group(g).of(load<V>(s.numbers)));
      table = _mm512_maskz_broadcast_i64x4(0xff, (__m256i)rounded);
    }
  };
  using Line = __m512i;
  static FASTGEMM_INLINE Line read(const uint8_t* p) { return load<__m512i>(p); }
  template <int STEP>
  static FASTGEMM_INLINE __m512i weights(const Group& g, const Line& line) {
    return _mm512_maskz_permutexvar_epi16(~0u, _mm512_maskz_srli_epi16(~0u, line, 4 * STEP), g.table);
  }
};

// Lines of 32 codes of 8 bits.
struct ByteLines : Pairs {
  static constexpr int kSteps = 1, kBytes = 32, kCodes = 32, kMostRows = 4;
  static constexpr bool kAlongLanes = false;
  static bool suits(int64_t group_k) { return group_k % kCodes == 0; }
  using Line = const uint8_t*;
  static FASTGEMM_INLINE Line read(const uint8_t* p) { return p; }
};

template <bool kFloating>
struct BytePairs : ByteLines {
  using Group = AffineGroup;
  template <int>
  static FASTGEMM_INLINE __m512i weights(const Group& g, const Line& line) {
    return (__m512i)_mm512_cvtne2ps_pbh(g.affine.of(load_codes<kFloating>(line + N)),
                                        g.affine.of(load_codes<kFloating>(line)));
  }
};

// Codes of e4m3 without scales, which are exact in bfloat16.
template <class GroupOrPart>
struct CodePairs : ByteLines {
  using Group = GroupOrPart;
  using Remainder = NumberPairs<GroupOrPart>;
  template <int>
  static FASTGEMM_INLINE __m512i weights(const Group&, const Line& line) {
    return e4m3_to_bf16(line);
  }
};

template <class GroupOrPart>
struct NumberPairs : Pairs {
  static constexpr int kSteps = 1, kBytes = 64, kCodes = 2 * N;
  static constexpr bool kAlongLanes = false;
  using Group = GroupOrPart;
  using Line = __m512i;
  static FASTGEMM_INLINE Line read(const uint8_t* p) { return load<__m512i>(p); }
  template <int>
  static FASTGEMM_INLINE __m512i weights(const Group&, const Line& line) {
    return line;
  }
};

}  // namespace weights
}  // namespace fastgemm::FASTGEMM_ISA

namespace fastgemm {
void gemm_streamed_bf16(const GemmProblem& p, Context& ctx) {
  using namespace FASTGEMM_ISA::weights;
  if (scales_parts(p)) {
    const int64_t part = part_of_k(p);
    return stream_rows<CodePairs<PartGroup>>(p, part < p.k ? part : kEndless, true, ctx);
  }
  const int64_t group_k = group_of(p);
  switch (p.packed.code) {
    case Code::int8:
      return stream_rows<BytePairs<false>>(p, group_k, BytePairs<false>::suits(group_k), ctx);
    case Code::e4m3:
      if (p.packed.scale == ScaleType::none) return stream_rows<CodePairs<NoGroup>>(p, kEndless, true, ctx);
      return stream_rows<BytePairs<true>>(p, group_k, BytePairs<true>::suits(group_k), ctx);
    default:
      stream_rows<NibblePairs>(p, group_k, NibblePairs::suits(group_k), ctx);
  }
}
}  // namespace fastgemm
