#include "cuda/gemm/parts/tile_grid.cuh"
#include "cuda/gemm/parts/wgmma_operand.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class G>
WgmmaOperands<G> wgmma_operands(const G& g, int batch, int bm, int bn, Context& context) {
  using T = typename G::Element;
  RowCopies copies;
  const BoxOperands<T> operands(g, batch, copies, context);
  G problem = g;
  if constexpr (kFuses<G>) problem.epilogue = whole_pairs(g.epilogue, g, copies, context);
  copies.launch({}, context);
  return {.problem = {.gemm = problem,
                      .batch = batch,
                      .tiles = int(tile_grid(g.m, g.n, bm, bn, batch).grid.x),
                      .tiles_m = int(ceil_div(g.m, bm)),
                      .tiles_n = int(ceil_div(g.n, bn)),
                      .steps = int(ceil_div(g.k, 128 / int(sizeof(T)))),
                      .batch_a = operands.a.batch_stride != 0,
                      .batch_b = operands.b.batch_stride != 0},
          .maps = {operands.a.map(bm), operands.b.map(bn)},
          .a_major = operands.a.major,
          .b_major = operands.b.major};
}

#define FASTGEMM_WGMMA_OPERANDS(G) \
  template WgmmaOperands<G> wgmma_operands(const G&, int, int, int, Context&);
FASTGEMM_WGMMA_OPERANDS(Gemm<float>)
FASTGEMM_WGMMA_OPERANDS(Gemm<Half>)
FASTGEMM_WGMMA_OPERANDS(Gemm<BFloat16>)
FASTGEMM_WGMMA_OPERANDS(Gemm<int8_t>)
FASTGEMM_WGMMA_OPERANDS(Layer<Gemm<float>>)
FASTGEMM_WGMMA_OPERANDS(Layer<Gemm<Half>>)
FASTGEMM_WGMMA_OPERANDS(Layer<Gemm<BFloat16>>)
#undef FASTGEMM_WGMMA_OPERANDS

}  // namespace fastgemm::FASTGEMM_TARGET
