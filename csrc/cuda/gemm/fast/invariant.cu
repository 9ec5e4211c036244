// The kernel of wgmma_specialized for few rows, where the bits of a row of C must not depend on the others
// (docs/invariant.md, GemmProblem::invariant). No tile is shared by blocks: one block makes each sum, from
// the first k to the last, in the order of wgmma_specialized's tiles.
//
// A decoding step is bound by reading B, the weights, once, and a multiprocessor reads only at
// its share of the bandwidth. So each multiprocessor gets one tile of (64, N) sums, and N is small enough for
// all of them to have work. Boxes of A have as many rows as C, rounded up to a multiple of 8: on an H200 the
// TMA takes longer to fill rows beyond the matrix with zeros than to load rows. The remaining rows of a stage
// are multiplied, too, but their sums are never stored. They are cleared once, because checkers report reads
// of uninitialized memory.
#include "cuda/gemm/fast/decode.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/wgmma_kernel.cuh"
#include "cuda/gemm/predict/plans.h"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kRows = plans::kDecodeRows;  // rows of a tile

template <int N>
struct Shape {
  static constexpr int kN = N, kStageBytes = (kRows + N) * 128;
  using Shared = WgmmaShared<(216 << 10) / kStageBytes, kStageBytes, 4>;
  static_assert(sizeof(Shared) <= 227 << 10);
};

template <class T>
struct Arguments {
  Gemm<T> gemm;
  DecodeTiles tiles;
  int stages;         // stages per tile
  bool pairs;         // two neighbours in a row of C can be stored together
  Epilogue epilogue;  // used by kernels that fuse it
};

// Every part is a whole tile.
template <class S, class T>
struct Schedule {
  const Arguments<T>& g;

  template <class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    for (int tile = int(blockIdx.x); tile < g.tiles.count; tile += int(gridDim.x))
      body(Part{tile, 0, 1}, 0, g.stages);
  }
  __device__ __forceinline__ DecodeTiles::Place place(const Part& part) const {
    return g.tiles.template place_of<S::kN>(part.tile);
  }
};

// The consumers clear rows [first, kRows) of A in every stage.
template <class Shared>
__device__ __forceinline__ void clear_rows(Shared& shared, int first) {
  constexpr int kUnits = kRows * 128 / 16;
  if (first == kRows) return;
  for (int stage = 0; stage < Shared::kStages; ++stage)
    for (int i = first * 8 + int(threadIdx.x); i < kUnits; i += 32 * Shared::kConsumerWarps)
      store_vector(shared.stage[stage] + 16 * i, Vector<uint32_t, 4>{});
  fence_async_shared();
}

// Stores a thread's sums, pairs of neighbouring columns in two rows, as elements of type Out. It applies the
// same epilogue as wgmma_specialized.
template <class S, class Out, class T, int R>
__device__ __forceinline__ void store_sums(const Gemm<T>& g, const Epilogue& epilogue, float (&sum)[R],
                                           int row, int column, bool pairs) {
  if constexpr (kFuses<S>) finish_strip<8, Out>(epilogue, column, int(g.n), sum);
  const Result<T>& r = g.result;
  const bool adds = r.beta != 0;
  const auto value = [&](int at_row, int at_column, float x) {
    if (!adds) return r.alpha * x;
    const float c = widen(static_cast<const Out*>(r.c)[at_row * r.c_row_stride + at_column * r.c_col_stride]);
    return multiply_add(r.alpha, x, r.beta * c);  // as compiled in wgmma_specialized
  };
  FASTGEMM_UNROLL
  for (int i = 0; i < R; i += 2) {
    const Position p = WgmmaLayout<TensorCoreElement<T>>::c(int(threadIdx.x) % 128, i);
    const int at_row = row + p.row, at_column = column + p.column;
    if (at_row >= g.m || at_column >= g.n) continue;
    Out* const to = static_cast<Out*>(r.out) + at_row * r.row_stride + at_column;
    const Out first = round_to<Out>(value(at_row, at_column, sum[i]));
    if (at_column + 1 >= g.n) {
      *to = first;
      continue;
    }
    const Out second = round_to<Out>(value(at_row, at_column + 1, sum[i + 1]));
    if (pairs)
      store_vector(to, Vector<Out, 2>{{first, second}});
    else
      to[0] = first, to[1] = second;
  }
}

template <class S, class T, Major b_major>
__global__ void __launch_bounds__(S::Shared::kThreads, 1)
    decode_kernel(const __grid_constant__ BoxMaps maps, const __grid_constant__ Arguments<T> g) {
#if FASTGEMM_SM90A
  using E = TensorCoreElement<T>;
  using Source = BoxSource<E, Major::k, kRows, Read::often, b_major, S::kN, Read::once>;
  using Shared = typename S::Shared;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  const int warp = warp_index();
  if (warp < Shared::kConsumerWarps) clear_rows(*shared, g.tiles.rows);
  const Source source{maps, g.tiles.rows * 128 + Source::Y::kBytes};
  const Schedule<S, T> schedule{g};
  run_wgmma(*shared, source, schedule, warp, [&](auto& sum, const Part& part) {
    const auto place = schedule.place(part);
    const Gemm<T> matrix = g.gemm.at_batch(place.batch);
    with_stored_type(matrix.result, [&]<class Out>() {
      store_sums<S, Out>(matrix, g.epilogue, sum, place.row, place.column, g.pairs);
    });
  });
#endif
}

template <class T>
void launch_decode(const Gemm<T>& g, int batch, const Epilogue& epilogue, Context& context) {
  RowCopies copies;
  const BoxOperand<T> a = activations(side_a(g, batch), batch, copies, context);
  const BoxOperand<T> b = box_operand(side_b(g, batch), batch, 1, false, copies, context);
  const Epilogue of_pairs = epilogue.asked() ? whole_pairs(epilogue, g, copies, context) : epilogue;
  copies.launch({}, context);
  const auto run = [&]<int N, Major b_major>() {
    const DecodeTiles tiles = decode_tiles(batch, g.m, g.n, N);
    const Arguments<T> arguments{g, tiles, plans::specialized_stages(g.k, int(sizeof(T))),
                                 stores_pairs(g.result, batch), of_pairs};
    const LaunchShape shape{dim3(unsigned(tiles.blocks())), dim3(Shape<N>::Shared::kThreads),
                            sizeof(typename Shape<N>::Shared), true};
    const BoxMaps maps(a, tiles.rows, b, N);
    if constexpr (b_major == Major::k) {
      if (epilogue.asked())
        return launch<decode_kernel<Fusing<Shape<N>>, T, b_major>>("decode", shape, context)(maps, arguments);
    }
    launch<decode_kernel<Shape<N>, T, b_major>>("decode", shape, context)(maps, arguments);
  };
  const int columns = plans::decode_columns(batch, g.m, g.n, b.major == Major::k, multiprocessors());
  if constexpr (kIsHalf<T>) {
    if (b.major == Major::mn)
      return columns == 64 ? run.template operator()<64, Major::mn>()
                           : run.template operator()<128, Major::mn>();
  }
  switch (columns) {
    case 16:
      return run.template operator()<16, Major::k>();
    case 32:
      return run.template operator()<32, Major::k>();
    case 64:
      return run.template operator()<64, Major::k>();
    case 96:
      return run.template operator()<96, Major::k>();
    case 112:
      return run.template operator()<112, Major::k>();
    default:
      return run.template operator()<128, Major::k>();
  }
}

bool takes(const GemmProblem& rows, const GemmProblem& p) {
  if (!plans::takes_decode(rows.batch, rows.m, rows.n, multiprocessors())) return false;
  if (p.type != DType::f32) return fuses_half(p);
  return rows.alpha == 1.0 && rows.beta == 0.0 && rows.k > 1 && rows.b.row_stride == 1;
}

}  // namespace

bool multiply_few_rows(const GemmProblem& p, Context& context) {
  const GemmProblem rows = by_rows(p);
  if (!takes(rows, p)) return false;
  run_gemm<float, Half, BFloat16>(
      p, context, [&](const auto& g, int batch) { launch_decode(g, batch, rows.epilogue, context); });
  return true;
}

}  // namespace fastgemm::FASTGEMM_TARGET
