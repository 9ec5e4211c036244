//   make sim KERNEL=packed_mma
//
// Level 6 since sm_80 with weights of 4 and 8 bits: tensor cores. What changes from level 5:
//   - the weight is the A operand of mma.sync: a unit holds its codes as fragments, so a thread reads 16
//   bytes and
//     has all its codes of 64 (8-bit codes: 32) columns; bit operations convert them in registers
//     (packed/fragments.cuh), and no decoded weight ever passes through shared memory. x is the B operand;
//   - codes and scales that a warp copies by cp.async are read by the same warp, x by all;
//   - tiles have 16, 32, 64 or 128 rows of x. With up to 64 the scales multiply the float32 sums of a group
//     (packed/mma_multiply.cuh): exact products, one rounding. Tiles of 128 x 256 have no registers for
//     second sums, so scales multiply the fragments there; each weight is then rounded once, as dequantized
//     ones are;
//   - few rows of x read a weight once, and only bytes in flight count: equal shares of all stages
//     (parts/schedules/shares.cuh) keep every multiprocessor reading until the end, and a second kernel adds
//     the sums of tiles that were shared, in the order of k.
//
// Zeros of integer codes are subtracted from fragments, where the difference is exact. Added zeros make
// complete weights of the fragments.
#include <bit>

#include "cuda/gemm/packed/mma_copy.cuh"
#include "cuda/gemm/packed/mma_multiply.cuh"
#include "cuda/gemm/packed/mma_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class S, class T>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    gemm_packed_mma_kernel(const __grid_constant__ MmaArguments<T> g) {
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  MmaCopies<S, T> copies(g);
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < S::kStages - 1; ++i) copies.request(shared->ring[i]);
  MmaProducts<S, T> products(g, *shared);
  int at = 0;
  g.shares.each_part(int(blockIdx.x), [&](const Part& part) {
    products.clear(MmaPlace<S>(part.tile, g).column);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      wait_async_copies<S::kStages - 2>();
      __syncthreads();  // all may read this stage, and all have read the one before
      copies.request(shared->ring[at == 0 ? S::kStages - 1 : at - 1]);
      products.multiply(shared->ring[at], step);
      at = at == S::kStages - 1 ? 0 : at + 1;
    }
    products.finish();
    store_sums<S>(g, *shared, products.sum(), part);
  });
}

template <class S>
ScaleSlices scale_slices(const PackedOperand& b) {
  const PackedWeight& w = b.weight;
  if (b.by_rows) return {.last_step = -1};
  const int columns = int(std::min<int64_t>(w.group_k, packed::kColumns));
  const int groups = std::max(S::kColumns / columns, 1), steps = S::kSteps / groups;
  const int size = size_of(w.scale), zero_size = packed::zero_size(w);
  ScaleSlices s{.groups = groups,
                .group_log = std::countr_zero(unsigned(columns)),
                .steps_log = std::countr_zero(unsigned(steps)),
                .last_step = steps - 1,
                .by_unit = w.group_n != 1};
  if (s.by_unit) {
    s.scale_pieces = b.scale_bytes / 16, s.pieces = s.scale_pieces + packed::unit_zero_bytes(w, b.k) / 16;
  } else {
    s.scale_pieces = groups * size, s.pieces = groups * (size + zero_size);
    s.scale_log = std::countr_zero(unsigned(size)),
    s.zero_log = zero_size ? std::countr_zero(unsigned(zero_size)) : 0;
  }
  return s;
}

// Whole tiles where few blocks are then idle, else equal shares of at least 4 stages.
template <class S>
int share(Shares& shares, int64_t tiles, int steps) {
  const int64_t slots = int64_t{S::kBlocks} * multiprocessors(), waves = ceil_div(tiles, slots);
  const bool whole = double(tiles) > 0.9 * double(waves * slots);
  const int64_t unit = whole ? steps : 1, units = tiles * steps / unit;
  const int64_t blocks = std::min({slots, units, whole ? slots : std::max(tiles, tiles * steps / 4)});
  shares = {steps, int(units / blocks * unit), int(units % blocks), int(unit)};
  return int(blocks);
}

template <class S, class T>
void launch_shape(const PackedGemm<T>& p, const PackedRows<T>& x, Context& context) {
  MmaArguments<T> g{p.gemm, p.b, x, int(p.gemm.m), int(p.gemm.n), int(p.gemm.k)};
  g.slices = scale_slices<S>(p.b);
  g.vectors = result_vectors(p.gemm.result);
  g.tiles_m = int(ceil_div(g.m, S::BM)), g.tiles_n = int(ceil_div(g.n, S::kBN));
  const int64_t tiles = int64_t{g.tiles_m} * g.tiles_n;
  const int blocks = share<S>(g.shares, tiles, int(ceil_div(g.k, S::kStageColumns)));
  const bool shared = g.shares.unit == 1 && blocks > 1;
  if (shared)
    g.partials = static_cast<float*>(context.allocate(size_t(blocks) * 2 * S::BM * S::kBN * sizeof(float)));
  launch<gemm_packed_mma_kernel<S, T>>(
      "packed_mma", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared)}, context)(g);
  if (shared)
    launch<gemm_packed_add_kernel<typename S::Tile, T>>(
        "packed_add", {dim3(unsigned(tiles), S::kTiles), dim3(32 * S::kGroupWarps)}, context)(g);
}

template <Code code, class T>
void launch_code(const PackedGemm<T>& p, Context& context) {
  const PackedRows<T> x = aligned_x(p.gemm, context);
  const auto run = [&]<int BM, ScalesOn on>() { launch_shape<MmaShape<code, BM, on>>(p, x, context); };
  const bool complete = p.b.weight.zero == Zero::added;
  if constexpr (code ==
                Code::nf4) {  // its numbers are rounded already, and products with scales would be again
    if (p.gemm.m > 64) return run.template operator()<128, ScalesOn::sums>();
  } else {
    if (p.gemm.m > 64 || (complete && p.gemm.m > 16))
      return run.template operator()<128, ScalesOn::fragments>();
    if (complete) return run.template operator()<16, ScalesOn::fragments>();
  }
  if (p.gemm.m > 32) return run.template operator()<64, ScalesOn::sums>();
  if (p.gemm.m > 16) return run.template operator()<32, ScalesOn::sums>();
  run.template operator()<16, ScalesOn::sums>();
}

}  // namespace

void gemm_packed_mma(const GemmProblem& problem, Context& context) {
  run_packed<Half, BFloat16>(problem, context, [&]<class T>(const PackedGemm<T>& p) {
    switch (p.b.weight.code) {
      case Code::int4:
        return launch_code<Code::int4>(p, context);
      case Code::nf4:
        return launch_code<Code::nf4>(p, context);
      case Code::e2m1:
        return launch_code<Code::e2m1>(p, context);
      case Code::int8:
        return launch_code<Code::int8>(p, context);
      default:
        return launch_code<Code::e4m3>(p, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
