//   make sim KERNEL=packed_mma ARGS='--dtype bf16'
//
// Level 6 since sm_80 with weights of 4 and 8 bits: tensor cores. What changes from level 5:
//   - the weight is the A operand of mma.sync: a unit holds its codes as fragments, so 16 bytes are all codes
//     that a thread has in 64 columns (8-bit codes: 32). Bit operations convert them in registers
//     (packed/unit_fragments.cuh), and no decoded weight ever passes through shared memory. x is the B
//     operand;
//   - a stage has units of the weight as they lie in device memory, one or two contiguous pieces;
//   - tiles have 16, 32 or 64 rows of x. Scales of whole rows multiply the sums at the end. With up to 16
//     rows, the scales of large groups multiply float32 sums, too, so that only the result is rounded. Other
//     scales multiply the fragments. This needs no second set of sums, but each weight is rounded once, as a
//     dequantized weight is. For nf4 scales always multiply sums, because its numbers are rounded already;
//   - with few rows of x, the time is that of reading the weight once. So blocks get equal shares of all
//     stages (parts/schedules/shares.cuh), and every multiprocessor reads until the end. A second kernel adds
//     the sums of tiles that were shared, in the order of k.
#include "cuda/gemm/packed/mma_copy.cuh"
#include "cuda/gemm/packed/mma_multiply.cuh"
#include "cuda/gemm/packed/mma_store.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class S, class T>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    gemm_packed_mma_kernel(const __grid_constant__ MmaArguments<T> g) {
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  launch_dependents();
  MmaCopies<S, T> copies(g);
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < S::kStages - 1; ++i) copies.request(shared->ring[i]);
  MmaProducts<S, T> products(g);
  int at = 0;
  g.shares.each_part(int(blockIdx.x), int(gridDim.x), [&](const Part& part) {
    products.clear(MmaPlace<S>(part.tile, g).column);
    FASTGEMM_NO_UNROLL
    for (int step = part.first; step < part.end; ++step) {
      wait_async_copies<S::kStages - 2>();
      __syncthreads();  // all may read this stage, and all have read the one before
      copies.request(shared->ring[at == 0 ? S::kStages - 1 : at - 1]);
      products.multiply(shared->ring[at]);
      at = at == S::kStages - 1 ? 0 : at + 1;
    }
    products.finish();
    store_sums<S>(g, *shared, products.sum(), part);
  });
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
void launch_shape(const GemmProblem& p, const Gemm<T>& gemm, const PackedRows<T>& x, Context& context) {
  MmaArguments<T> g{WeightUnits(p, T{}), gemm, x, int(gemm.m), int(gemm.k)};
  g.vectors = result_vectors(gemm.result);
  g.tiles_m = int(ceil_div(g.m, S::BM)), g.tiles_n = int(ceil_div(g.n, S::kBN));
  const int64_t tiles = int64_t{g.tiles_m} * g.tiles_n;
  const int blocks = share<S>(g.shares, tiles, int(ceil_div(g.k, S::kColumns)));
  const bool shared = g.shares.unit == 1 && blocks > 1;
  if (shared)
    g.partials = static_cast<float*>(context.allocate(size_t(blocks) * 2 * S::BM * S::kBN * sizeof(float)));
  launch<gemm_packed_mma_kernel<S, T>>(
      "packed_mma", {dim3(unsigned(blocks)), dim3(S::kThreads), sizeof(typename S::Shared)}, context)(g);
  if (shared)
    launch<gemm_packed_add_kernel<typename S::Tile, T>>(
        "packed_add", {dim3(unsigned(tiles), S::kTiles), dim3(32 * S::kGroupWarps), 0, true}, context)(g);
}

template <Code code, class T>
void launch_code(const GemmProblem& p, const Gemm<T>& g, Context& context) {
  const PackedRows<T> x = aligned_x(g, context);
  const auto run = [&]<int BM, Scaled scaled>() {
    launch_shape<MmaShape<code, BM, scaled>>(p, g, x, context);
  };
  if constexpr (code == Code::nf4) {
    g.m <= 16 ? run.template operator()<16, Scaled::sums>() : run.template operator()<32, Scaled::sums>();
  } else {
    const WeightUnits w(p, T{});
    const bool sums = w.at_end || (p.packed.group_k >= packed::kColumns && p.packed.zero != Zero::added);
    if (g.m <= 16 && sums) return run.template operator()<16, Scaled::sums>();
    if ((g.m > 16 && g.m <= 32) || (!w.at_end && !w.in_pairs))
      return run.template operator()<32, Scaled::any>();
    g.m <= 16 ? run.template operator()<16, Scaled::pairs>() : run.template operator()<64, Scaled::pairs>();
  }
}

}  // namespace

void gemm_packed_mma(const GemmProblem& problem, Context& context) {
  run_gemm<Half, BFloat16>(problem, context, [&]<class T>(const Gemm<T>& g, int /* batch: 1 */) {
    switch (problem.packed.code) {
      case Code::int4:
        return launch_code<Code::int4>(problem, g, context);
      case Code::nf4:
        return launch_code<Code::nf4>(problem, g, context);
      case Code::e2m1:
        return launch_code<Code::e2m1>(problem, g, context);
      case Code::int8:
        return launch_code<Code::int8>(problem, g, context);
      default:
        return launch_code<Code::e4m3>(problem, g, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
