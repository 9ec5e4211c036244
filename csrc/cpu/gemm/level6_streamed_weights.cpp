// Level 6 for packed weights and few rows: the weight is read once, in order, and never becomes a matrix.
//
// With one row of x, a product takes the time of reading the weight. So codes of 4 bits may take a quarter of
// bfloat16's time, if they are converted as fast as they are read. The engines (weight_pieces.h) convert to
// memory, transpose and read again. Here a code becomes a number in a register and is multiplied by up to 8
// rows of x at once:
//
//   for n in N, steps of R              rows of the weight, which threads share
//     for k in K, steps of kPanel       scales of the panel become float32
//       for 8 rows of x
//         for lines of codes            of R rows: a shift and a look-up for each vector of weights
//           sum[r][m] += weight[r] * x[m]
//
// If groups fill whole lines, the 16 weights of a group of 4-bit codes are computed once, and then looked up.
// Weights are float32 and not rounded to the type of x, unlike those of level6_streamed_bf16.cpp.
//
// Each sum is a vector of sums, whose lanes are added at the end. The terms of a lane and their order depend
// only on k and the format, so the bits of a row do not depend on the other rows. From about 32 rows on the
// engines are faster, because they convert a weight once for all rows, and their tiles need fewer loads.
#include "cpu/gemm/levels.h"
#include "cpu/gemm/streamed_weights.h"

namespace fastgemm::FASTGEMM_ISA {

void gemm_streamed_weights(const GemmProblem& p, Context& ctx) {
  using namespace weights;
  const int64_t group_k = group_of(p);
  switch (p.packed.code) {
    case Code::int8:
      return stream_rows<Bytes<false>>(p, group_k, Bytes<false>::suits(group_k), ctx);
    case Code::e4m3:
      return stream_rows<Bytes<true>>(p, group_k, Bytes<true>::suits(group_k), ctx);
    default:
      if (Nibbles<true>::suits(group_k)) return stream_rows<Nibbles<true>>(p, group_k, true, ctx);
      stream_rows<Nibbles<false>>(p, group_k, Nibbles<false>::suits(group_k), ctx);
  }
}

}  // namespace fastgemm::FASTGEMM_ISA
