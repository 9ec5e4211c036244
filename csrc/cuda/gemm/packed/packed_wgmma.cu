// Level 6 for weights of 4 and 8 bits and few rows of x, on Hopper: reading the codes takes most of the time.
// What changes from `skinny`:
//   - the large operand is read as units of codes (core/packed_weight.h) by bulk copies. Threads convert
//     codes to the fragments that wgmma takes from registers (packed/fragments.cuh), while the batch before
//     is multiplied;
//   - scales are applied to float32 sums, a group of k at a time: codes are exact in 16 bits, and so nothing
//     is rounded before the result. In three cases weights are scaled and rounded to the type of x instead:
//     in groups of less than 128 columns (except for nf4), where zeros are added to scaled codes, and in
//     tiles of 128 rows of x, whose sums take the registers (packed/unit_fragments.cuh, Scaled);
//   - with few rows of x the four warpgroups of a block share k, and add their sums in shared memory, so the
//     partial sums of a tile are small. With more rows, two warpgroups or none share k, and the 128 or 256
//     rows of the weight in a tile read the same x (gemm_units() chooses);
//   - the conversion bounds 4-bit codes: without it the stages would arrive in three quarters of the time. So
//     the usual formats have kernels that decide nothing at run time. Six warpgroups, deeper rings,
//     mma.sync with two chains of sums in place of wgmma, and two sets of sums by turns (no warpgroup waits
//     for all of its products then) were no faster, although issue slots are idle a third of the time;
//   - small weights are read in 2 us, but a product took 8 us: it waited. So a block computes where its part
//     begins, and asks L2 for its first units, before it waits for the kernel before;
//   - blocks compute whole tiles; where that leaves multiprocessors idle, clusters of two or four blocks do,
//     which share the k of a tile and send their sums to one of them; or blocks compute equal shares of k,
//     and a second kernel adds partial sums in the order of k (cluster_of_tiles() chooses). If there is an
//     epilogue, the second kernel applies it to all tiles.
//
// docs/quantized.md shows its times.
#include <bit>

#include "cuda/available.h"
#include "cuda/gemm/packed/packed_wgmma.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {

FASTGEMM_PACKED_INSTANCES(extern, int4)
FASTGEMM_PACKED_INSTANCES(extern, nf4)
FASTGEMM_PACKED_INSTANCES(extern, e2m1)
FASTGEMM_PACKED_INSTANCES_8_BITS(extern, int8)
FASTGEMM_PACKED_INSTANCES_8_BITS(extern, e4m3)

namespace {

constexpr int kAddThreads = 256;

// The second kernel: adds the partial sums of shared tiles, and applies an epilogue to all tiles. A thread
// has four rows of the weight and one row of x.
template <class S, class T>
__global__ void __launch_bounds__(kAddThreads)
    packed_add_kernel(const __grid_constant__ UnitGemm<T> g, int blocks) {
#if FASTGEMM_SM90A
  constexpr int kVectors = S::kRows / 4;
  const int tile = int(blockIdx.x) / blocks, i = int(blockIdx.x) % blocks * kAddThreads + int(threadIdx.x);
  const int row = i % kVectors * 4, column = i / kVectors, begin = tile * g.shares.steps;
  const bool shared = g.partials != nullptr;
  launch_dependents();
  const int first = shared ? g.shares.block_of(begin) : 0;
  const int last = shared ? g.shares.block_of(begin + g.shares.steps - 1) : 0;
  const PackedPlace<S> place(tile, g);
  const int weight_row = place.row_unit * packed::kRows + row, x_row = place.column + column;
  grid_dependency_wait();
  if (column >= S::kN || x_row >= g.gemm.m || weight_row >= g.n || (first == last && !g.wholes)) return;
  const int at = column * S::kRows + row;
  // The block `first` begins the tile. The share of every later block begins with this tile.
  const float* from = (first == last ? whole_of<S>(g, tile) : share_of<S>(g, first, true)) + at;
  const float* next = share_of<S>(g, first + 1, false) + at;
  constexpr int kAtOnce = 4, kNextBlock = 2 * S::kN * S::kRows;
  Vector16<float> sum{};
  add_vectors<kAtOnce>(sum, last - first + 1, 1, [&] {
    const float* const here = from;
    from = next, next += kNextBlock;
    return here;
  });
  store_results<true>(g, weight_row, x_row, sum);
#endif
}

// How many clusters run at once. Those of four blocks do not fill the groups of multiprocessors.
int64_t clusters_at_once(int64_t blocks, int cluster) {
  return (cluster > 2 ? blocks * 7 / 8 : blocks) / cluster;
}

// The size of the clusters that compute tiles, or 0 if all blocks share all tiles, by the stages that blocks
// read one after another. A block that reads while others are idle gets at most twice its share of the
// bandwidth of memory; with few rows of x 1.7 times, and with 4-bit codes no more, because it converts them.
// A second kernel for the sums takes as long as 56 KB of units, with few rows 30 KB, and sums in a cluster 8
// KB.
int cluster_of_tiles(int64_t tiles, int64_t steps, int64_t step_bytes, int64_t blocks, int code_bits,
                     int most) {
  const bool few_rows = most > 1;
  const double kilobyte = 1e3 / double(step_bytes), share = double(tiles * steps) / double(blocks);
  const double of_share = !few_rows ? (tiles < blocks ? 2.0 : 1.0) : code_bits == 4 ? 1.0 : 1.7;
  int best = 0;
  double least = share + (few_rows ? 30 : 56) * kilobyte;
  for (int cluster = 1; cluster <= std::min<int64_t>(most, steps); cluster *= 2) {
    const int64_t clusters = clusters_at_once(blocks, cluster);
    if (clusters == 0 || (cluster > 2 && tiles > clusters)) break;
    const double part = double(ceil_div(steps, int64_t(cluster)));
    const int64_t waves = tiles / clusters, last = tiles % clusters;
    const double of_last = std::max(double(last) / double(clusters), last > 0 ? 1 / of_share : 0.0);
    const double time = part * (double(waves) + of_last) + (cluster > 1 ? 8 * kilobyte : 0.0);
    if (time <= least) best = cluster, least = time;
  }
  return best;
}

Scaled scaled_of(const PackedWeight& w, int64_t k, int columns) {
  if (w.by_rows(k)) return w.zero == Zero::added ? Scaled::weights : Scaled::rows;
  if (w.code == Code::nf4) return w.group_k < packed::kColumns ? Scaled::halves : Scaled::units;
  return columns > 64 || w.zero == Zero::added || w.group_k < packed::kColumns ? Scaled::weights
                                                                               : Scaled::units;
}

template <class S, class T>
struct UnitPlan {
  UnitGemm<T> arguments;
  int blocks;

  UnitPlan(const Gemm<T>& gemm, const GemmProblem& p, Context& context) {
    UnitGemm<T>& g = arguments;
    static_cast<WeightUnits&>(g) = WeightUnits(p, T{});
    g.gemm = gemm, g.scaled = scaled_of(p.packed, p.k, S::kN);
    g.x_rows = int(std::min<int64_t>(S::kN, ceil_div(gemm.m, 8) * 8));
    g.box_bytes = (S::kFew ? g.x_rows : S::kN) * 128, g.x_bytes = 2 * S::kAlongK * g.box_bytes;
    g.whole_pieces = p.k % 64 == 0;
    g.tiles_down = int(ceil_div(g.row_units, S::kRowUnits)), g.tiles_across = int(ceil_div(gemm.m, S::kN));
    g.row_pitch = int(ceil_div(S::kAlongK * g.unit_bytes, 128)) * 128;
    g.stage_bytes = int(ceil_div(g.x_bytes + S::kRowUnits * g.row_pitch, 1024)) * 1024;
    const int stage_memory = S::kSharedBytes - S::kStagesAt - S::table_bytes(g.weight.code);
    g.stages = std::min(S::kMostStages, stage_memory / g.stage_bytes);
    g.vectors = result_vectors(gemm.result), g.epilogue = p.epilogue;
    divide(context);
  }

 private:
  void divide(Context& context) {
    UnitGemm<T>& g = arguments;
    const int64_t steps = ceil_div(g.column_units, S::kAlongK);
    const int64_t tiles = int64_t{g.tiles_down} * g.tiles_across;
    const int of_tile = cluster_of_tiles(tiles, steps, S::kWarpgroups * g.unit_bytes, multiprocessors(),
                                         bits_of(g.weight.code), S::kMostOfCluster);
    const bool whole = of_tile > 0;
    g.cluster = std::max(of_tile, 1), g.log_cluster = std::bit_width(unsigned(g.cluster)) - 1;
    const int64_t unit = whole ? steps : 1, units = tiles * steps / unit;
    const int64_t clusters = std::min(clusters_at_once(multiprocessors(), g.cluster), units);
    blocks = int(clusters) * g.cluster;
    g.shares = {int(steps), int(units / clusters * unit), int(units % clusters), int(unit)};
    g.partials = g.wholes = nullptr;
    constexpr size_t kTileBytes = S::kRows * S::kN * sizeof(float);
    if (!whole) g.partials = static_cast<float*>(context.allocate(size_t(blocks) * 2 * kTileBytes));
    if (g.epilogue.asked()) g.wholes = static_cast<float*>(context.allocate(size_t(tiles) * kTileBytes));
  }
};

// x in place, or a copy whose rows the TMA can read.
template <class T>
BoxOperand<T> rows_of_x(const Gemm<T>& g, Context& context) {
  BoxOperand<T> x{g.a.data, Major::k, g.m, g.k, g.a.row_stride, 0, 1};
  if (g.m == 1) x.row_stride = ceil_div(g.k, kPer16Bytes<T>) * kPer16Bytes<T>;
  if (x.readable()) return x;
  RowCopies copies;
  const PackedRows<T> copy = copies.add(g.a.data, g.m, g.k, g.a.row_stride, 1, 0, 1, context);
  copies.launch({}, context);
  x.data = copy.data, x.row_stride = copy.row_stride;
  return x;
}

// Boxes of the x of a stage: pieces of 64 columns are planes. The manual wants each stride to be a multiple
// of the one before it; driver 580 takes them in any order.
template <class S, class T>
TensorMap map_of_stages(const BoxOperand<T>& x, const Gemm<T>& g, int rows) {
  return make_tensor_map({x.data, 2, 64, g.m, g.k / 64, x.row_stride * 2, 128, 64, rows, Swizzle::bytes128,
                          false, 2 * S::kAlongK});
}

template <class S, class T>
void launch_tiles(const Gemm<T>& gemm, const GemmProblem& p, const BoxOperand<T>& x, Context& context) {
  const UnitPlan<S, T> plan(gemm, p, context);
  const UnitGemm<T>& g = plan.arguments;
  // With many rows of x, blocks that begin early slow down a long read (parts/overlaps.cuh).
  const bool overlaps = S::kAlongK > 1 || int64_t{g.row_units} * g.column_units * g.unit_bytes < 32'000'000;
  const LaunchShape shape{dim3(unsigned(plan.blocks)), dim3(S::kThreads), S::kSharedBytes, overlaps,
                          g.cluster};
  const TensorMap map = S::kFew && g.whole_pieces ? map_of_stages<S>(x, gemm, g.x_rows) : x.map(g.x_rows);
  switch (p.packed.code) {
    case Code::int4:
      launch_units<Code::int4, S>(map, g, shape, context);
      break;
    case Code::nf4:
      launch_units<Code::nf4, S>(map, g, shape, context);
      break;
    case Code::e2m1:
      launch_units<Code::e2m1, S>(map, g, shape, context);
      break;
    default:
      if constexpr (!std::is_same_v<S, PackedTile32>)
        p.packed.code == Code::int8 ? launch_units<Code::int8, S>(map, g, shape, context)
                                    : launch_units<Code::e4m3, S>(map, g, shape, context);
  }
  if (!g.partials && !g.wholes) return;
  const int64_t tiles = int64_t{g.tiles_down} * g.tiles_across;
  const int64_t blocks = ceil_div(S::kRows / 4 * std::min<int64_t>(S::kN, gemm.m), kAddThreads);
  launch<packed_add_kernel<S, T>>("packed_add", {dim3(unsigned(tiles * blocks)), dim3(kAddThreads), 0, true},
                                  context)(g, int(blocks));
}

// With 17 to 32 rows: whether tiles have 128 rows of the weight, which halves what is read of x. With 64
// rows, as much is read of x as of a weight of 8 bits, and twice as much as of one of 4 bits. From this n on,
// as measured on an H200, weights of 4 bits have enough tall tiles. Those of 8 bits have no instances of the
// others, which win only by 1 us, for small weights.
bool is_tall(const PackedWeight& w, int64_t n) { return bits_of(w.code) == 8 || n >= 8192; }

// Whether to compute more rows of x by tall tiles, too. At most one wave of them needs no second kernel, or
// its partial sums are small. But each code is converted once for every 32 rows of x, and with a long k this
// pays only up to half a wave: 8192 x 28672 with 64 rows took 88 us in place of 63.
bool few_tall_tiles(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kRows = PackedTile32Tall::kRows, kColumns = PackedTile32Tall::kN;
  const int64_t tiles = ceil_div(n, kRows) * ceil_div(m, kColumns);
  return tiles <= (k <= 4096 ? multiprocessors() : multiprocessors() / 2);
}

template <class T>
void gemm_units(const Gemm<T>& g, const GemmProblem& p, Context& context) {
  const BoxOperand<T> x = rows_of_x(g, context);
  const PackedWeight& w = p.packed;
  if (g.m <= 16) return launch_tiles<PackedTile16>(g, p, x, context);
  if (g.m <= 32 && !is_tall(w, g.n)) return launch_tiles<PackedTile32>(g, p, x, context);
  if (g.m <= 32 || few_tall_tiles(g.m, g.n, g.k)) return launch_tiles<PackedTile32Tall>(g, p, x, context);
  // Tiles of 128 rows leave too few registers for the second sums of nf4, and for some codes whose scales
  // have another type.
  const bool pairs_only = w.code == Code::e2m1 || w.code == Code::int8;  // kNarrowFloats
  const bool by_floats =
      scaled_of(w, p.k, 128) == Scaled::weights && !UnitScales(w, p.k).template paired<T>(w.code);
  const bool narrow = w.code == Code::nf4 ? !w.by_rows(p.k) : pairs_only && by_floats;
  g.m <= 64 || narrow ? launch_tiles<PackedTile64>(g, p, x, context)
                      : launch_tiles<PackedTile128>(g, p, x, context);
}

}  // namespace

void gemm_packed_wgmma(const GemmProblem& p, Context& context) {
  run_gemm<Half, BFloat16>(p, context, [&](const auto& g, int /* batch: 1 */) { gemm_units(g, p, context); });
}

}  // namespace fastgemm::FASTGEMM_TARGET
