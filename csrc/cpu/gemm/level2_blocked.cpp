// Level 2: cache blocking.
//
// The product is divided into blocks: a 64 x 64 tile of C sums the products of blocks of A and B that are 256
// deep. Both blocks (64 KiB each in fp32) stay in the L2 cache while each element is used 64 times, so A and
// B are read from memory N / 64 times instead of N times. Inside a block the loops run i, k, j, so that
// row-major B is read along its cache lines. Down its columns, at a stride of 4 KiB, every access would go to
// the same set of the L1 cache. Blocking would then gain nothing (0.7 GFLOPS at 1024 with and without
// it).
#include "cpu/gemm/epilogue.h"
#include "cpu/gemm/levels.h"
#include "cpu/gemm/parallel.h"
#include "cpu/gemm/weight_pieces.h"

namespace fastgemm::scalar {
namespace {

constexpr int64_t BM = 64, BN = 64, BK = 256;

// tile (BM, BN) += A block (rows, depth) * B block (depth, cols)
template <class T>
void multiply_block(const T* a, const ConstMatrix& av, const T* b, const ConstMatrix& bv, int64_t rows,
                    int64_t cols, int64_t depth, Accumulator<T> (&tile)[BM][BN]) {
  for (int64_t i = 0; i < rows; ++i) {
    Accumulator<T> sum[BN] = {};
    for (int64_t kk = 0; kk < depth; ++kk) {
      const Accumulator<T> a_value = widen(a[i * av.row_stride + kk * av.col_stride]);
      for (int64_t j = 0; j < cols; ++j) sum[j] += a_value * widen(b[kk * bv.row_stride + j * bv.col_stride]);
    }
    for (int64_t j = 0; j < cols; ++j) tile[i][j] += sum[j];
  }
}

// A block of B where it lies in memory. A block of a packed weight becomes numbers in `numbers`, column by
// column.
template <class T>
struct BlockOfB {
  T numbers[kTakesWeights<T> ? BN * BK : 1];
  const T* data;
  ConstMatrix view;

  BlockOfB(const GemmProblem& p, const T* b, int64_t j, int64_t cols, int64_t k, int64_t depth)
      : data(b + k * p.b.row_stride + j * p.b.col_stride), view(p.b) {
    if constexpr (kTakesWeights<T>) {
      if (!p.packed.is_given()) return;
      dequantize({&p.packed, b, p.k, j, cols, k, depth, kWeightType<T>, numbers, BK});
      data = numbers, view.row_stride = 1, view.col_stride = BK;
    }
  }
};

// Returns false if the call must stop.
template <class T, class Out>
bool blocked(const GemmProblem& p, int64_t batch, Context& ctx, Pace& pace) {
  using Acc = Accumulator<T>;
  const T* a = static_cast<const T*>(p.a.data) + batch * p.a.batch_stride;
  const T* b = static_cast<const T*>(p.b.data) + batch * p.b.batch_stride;
  const OutputBlock<Out> o = output_of<Out>(p, batch);
  for (int64_t i = 0; i < p.m; i += BM) {
    for (int64_t j = 0; j < p.n; j += BN) {
      const int64_t rows = min(BM, p.m - i), cols = min(BN, p.n - j);
      if (pace.due(rows * cols * p.k) && stopped(ctx)) return false;
      Acc tile[BM][BN] = {};
      for (int64_t kk = 0; kk < p.k; kk += BK) {
        const int64_t depth = min(BK, p.k - kk);
        const BlockOfB<T> block(p, b, j, cols, kk, depth);
        multiply_block(a + i * p.a.row_stride + kk * p.a.col_stride, p.a, block.data, block.view, rows, cols,
                       depth, tile);
      }
      store_tile(&tile[0][0], BN, rows, cols, scalar_of<Acc>(p.alpha), scalar_of<Acc>(p.beta), o.at(i, j));
    }
  }
  return true;
}

}  // namespace
}  // namespace fastgemm::scalar

namespace fastgemm {

void gemm_blocked(const GemmProblem& p, Context& ctx) {
  Pace pace;
  scalar::with_types(p, [&]<class T, class Out>() {
    for (int64_t batch = 0; batch < p.batch; ++batch)
      if (!scalar::blocked<T, Out>(p, batch, ctx, pace)) return;
  });
}

}  // namespace fastgemm
