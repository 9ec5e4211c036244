// Level 6 for weights of 4 and 8 bits and many rows of x, on Hopper. What changes from `packed_wgmma`:
//   - tiles are (128, 256) of C^T: each code is converted for 256 rows of x, so conversion hides behind the
//     products;
//   - scales are applied to the weights before they are multiplied. A second set of sums, for a group, would
//     need as many registers as the tile. The error is that of a product with the dequantized weight;
//   - all else is wgmma_specialized: persistent blocks, stream-K for the last wave, asynchronous stores of
//     boxes, which are transposed here (parts/specialized.cuh).
//
// A scale that serves a whole row, and a bias, are applied to the sums of a finished tile.
#include "cuda/gemm/packed/packed_tiles.cuh"

namespace fastgemm::FASTGEMM_TARGET {

extern template struct PackedTiles<Code::int4>;
extern template struct PackedTiles<Code::e2m1>;
extern template struct PackedTiles<Code::int8>;
extern template struct PackedTiles<Code::e4m3>;

void gemm_packed_tiles(const GemmProblem& p, Context& context) {
  switch (p.packed.code) {
    case Code::int4:
      return PackedTiles<Code::int4>::run(p, context);
    case Code::e2m1:
      return PackedTiles<Code::e2m1>::run(p, context);
    case Code::int8:
      return PackedTiles<Code::int8>::run(p, context);
    default:
      return PackedTiles<Code::e4m3>::run(p, context);
  }
}

}  // namespace fastgemm::FASTGEMM_TARGET
