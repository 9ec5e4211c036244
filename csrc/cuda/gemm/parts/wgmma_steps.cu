#include "cuda/gemm/parts/sources/wgmma_operand.cuh"
#include "cuda/gemm/parts/tile_grid.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {

template <class T>
WgmmaOperands<T> wgmma_operands(const Gemm<T>& g, int batch, int bm, int bn, bool any_a, Context& context) {
  RowCopies copies;
  BoxOperands<T> operands(g, batch, copies, context);
  if (!any_a && operands.a.major == Major::mn)
    operands.a = copied_along(Major::k, side_a(g, batch), batch, context);
  copies.launch({}, context);
  return {.problem = {.gemm = g,
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

template WgmmaOperands<float> wgmma_operands(const Gemm<float>&, int, int, int, bool, Context&);
template WgmmaOperands<Half> wgmma_operands(const Gemm<Half>&, int, int, int, bool, Context&);
template WgmmaOperands<BFloat16> wgmma_operands(const Gemm<BFloat16>&, int, int, int, bool, Context&);
template WgmmaOperands<int8_t> wgmma_operands(const Gemm<int8_t>&, int, int, int, bool, Context&);

}  // namespace fastgemm::FASTGEMM_TARGET
