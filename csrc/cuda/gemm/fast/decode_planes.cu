// float32 products of few rows, with the bits that bf16x6 gives them where k alone fixes its chunks
// (Bf16x6Invariant, fast/invariant.cu). bf16x6 cuts both operands into planes in memory first, which takes
// many times as long as reading the weights, B, once; here they are cut on the way:
//
//   memory --[TMA, 1 warp]--> raw float32 --[10 warps cut]--> planes --[4 warps, wgmma]--> sums (64, N)
//              a ring of (N, 32) of B and rows of A      the rings of bf16x6 (parts/planes/shape.cuh)
//
//   - Two sets of five warps cut the stages in turn, so that one set's latencies hide behind the other.
//     Cutting a strip of 8 rows takes a warp as long as the tensor cores need for a stage; so the fifth warps
//     have A's first strips. Else, of few rows, one warp of four would have two strips of five.
//   - The loop over planes is that of bf16x6 (PromotingLoop), on tiles of 64 rows; what the rows that are not
//     there hold is multiplied, too, and never stored. They are cleared once.
//   - Rows and columns whose magnitudes need a scale are known at the end of a tile. Where there is one the
//     tile is computed again, scaled; float32 numbers below 2^-110 are rare.
//   - Sums that are not finite are computed again, by a warp each, with the bits that repair.cuh gives them.
//
// No block shares a tile, as in the decode kernel of 16-bit types (fast/invariant.cu).
#include "cuda/gemm/fast/decode_cutter.cuh"
#include "cuda/gemm/parts/blend.cuh"
#include "cuda/gemm/parts/float_dot.cuh"
#include "cuda/gemm/parts/planes/multiply.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace planes::decode {
namespace {

// An element computed again by a warp, as repair_strip() of repair.cuh adds: sums of 32 products in turn, of
// which each lane makes one.
__device__ __forceinline__ float sum_again(const Gemm<float>& g, int64_t row, int64_t column) {
  constexpr int kK = 32;
  const int lane = fresh_lane();
  float sum = 0;
  FASTGEMM_NO_UNROLL
  for (int64_t first = 0; first < g.k; first += 32 * kK) {
    const int64_t begin = first + lane * kK, end = min(g.k, begin + kK);
    float mine = 0;
    FASTGEMM_NO_UNROLL
    for (int64_t k = begin; k < end; ++k) mine = multiply_add(*g.a.at(row, k), *g.b.at(k, column), mine);
    const int parts = int(min(int64_t{32}, (g.k - first + kK - 1) / kK));
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < parts; ++i) sum += __shfl_sync(0xffffffffu, mine, i);
  }
  return sum;
}

// Computes the warp's sums that are not finite again: bit i of a lane's `wrong` says that its sum i is one.
template <class S>
__device__ __forceinline__ void repair_sums(const Gemm<float>& g, const DecodeTiles::Place& place,
                                            const uint32_t (&wrong)[(S::kSums + 31) / 32]) {
  constexpr int kWords = (S::kSums + 31) / 32;
  static_assert(kWords <= 2);
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < S::kSums; ++i) {
    const uint32_t word = i < 32 ? wrong[0] : wrong[kWords - 1];  // no index, which would need memory
    const uint32_t lanes = __ballot_sync(0xffffffffu, word >> i % 32 & 1);
    if (lanes == 0) continue;
    FASTGEMM_NO_UNROLL
    for (int lane = 0; lane < 32; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      const Position p = WgmmaLayout<BFloat16>::c(int(threadIdx.x) / 32 * 32 + lane, i);
      const int row = place.row + p.row, column = place.column + p.column;
      const float sum = sum_again(g, row, column);
      if (fresh_lane() == 0) g.result.store(row, column, sum);
    }
  }
}

template <class S>
__device__ __forceinline__ void store_sums(const typename S::Shared& shared, const DecodeArguments& g,
                                           const DecodeTiles::Place& place, float (&sum)[S::kSums],
                                           bool scaled) {
  const Gemm<float> here = g.gemm.at_batch(place.batch);
  float* const out = static_cast<float*>(here.result.out);
  uint32_t wrong[(S::kSums + 31) / 32] = {};
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; i += 2) {
    const Position p = WgmmaLayout<BFloat16>::c(int(threadIdx.x), i);
    const int row = place.row + p.row, column = place.column + p.column;
    if (row >= here.m || column >= here.n) continue;
    if (scaled) {
      const float of_row = 1.f / shared.scale[S::kN + p.row];
      FASTGEMM_UNROLL
      for (int e = 0; e < 2; ++e) sum[i + e] = sum[i + e] * of_row * (1.f / shared.scale[p.column + e]);
    }
    const bool two = column + 1 < here.n;
    if (!is_finite(sum[i])) wrong[i / 32] |= 1u << i % 32;
    if (two && !is_finite(sum[i + 1])) wrong[i / 32] |= 2u << i % 32;
    float* const to = out + row * here.result.row_stride + column;
    if (g.pairs && two) {
      store_vector(to, Vector<float, 2>{{sum[i], sum[i + 1]}});
    } else {
      to[0] = sum[i];
      if (two) to[1] = sum[i + 1];
    }
  }
  bool any = false;
  FASTGEMM_UNROLL
  for (const uint32_t word : wrong) any = any || word != 0;
  if (!__any_sync(0xffffffffu, any)) return;
  __syncwarp();
  repair_sums<S>(here, place, wrong);
}

// The end of a tile for all warps: whether it is to be computed again, scaled.
template <class S>
__device__ __forceinline__ bool asks_for_scales(typename S::Shared& shared, int turn) {
  constexpr int kBarrier = 1;
  named_barrier(kBarrier, kThreads);
  if (__all_sync(0xffffffffu, shared.plain[turn][fresh_lane() % kCutters] != 0)) return false;
  find_scales<S>(shared);
  named_barrier(kBarrier, kThreads);
  return true;
}

// Calls compute(place, scaled, turn) for each tile of the block, twice where it asks for scales, and then
// finish(place, scaled).
template <class S, class Compute, class Finish>
__device__ __forceinline__ void for_tiles(typename S::Shared& shared, const DecodeArguments& g,
                                          Compute&& compute, Finish&& finish) {
  int turn = 0;
  FASTGEMM_NO_UNROLL
  for (int tile = int(blockIdx.x); tile < g.tiles.count; tile += int(gridDim.x), turn ^= 1) {
    const auto place = g.tiles.template place_of<S::kN>(tile);
    bool scaled = false;
    FASTGEMM_NO_UNROLL
    while (true) {
      compute(place, scaled, turn);
      if (scaled) break;
      scaled = asks_for_scales<S>(shared, turn);
      if (!scaled) break;
    }
    finish(place, scaled);
  }
}

template <class S, class Cuts>
__device__ __forceinline__ void cut_tiles(typename S::Shared& shared, const DecodeArguments& g, Cuts cutter) {
  for_tiles<S>(
      shared, g,
      [&](const DecodeTiles::Place&, bool scaled, int turn) {
        const bool plain = cutter.cut(shared, g.stages, g.tiles.rows, scaled);
        if (!scaled && fresh_lane() == 0) shared.plain[turn][cutter.number()] = plain;
      },
      [](const DecodeTiles::Place&, bool) {});
}

template <class S, Major b_major>
__global__ void __launch_bounds__(kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeMaps maps, const __grid_constant__ DecodeArguments g) {
#if FASTGEMM_SM90A
  using Place = DecodeTiles::Place;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  if (threadIdx.x == kThreads - 1) prefetch_map(&maps.a), prefetch_map(&maps.b);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kSlots; ++i) {
      init_barrier(&shared->full[i], kSetWarps);
      init_barrier(&shared->empty[i], kMultipliers);
    }
    shared->loaded.init(1, kSetWarps);
    fence_barrier_init();
  }
  clear_rows<S>(*shared, g.tiles.rows);
  __syncthreads();
  const int warp = warp_index();
  if (warp < kMultipliers) {
    claim_registers<208>();
    PromotingLoop<S> multiplier(*shared, 0, g.chunk);
    float sum[S::kSums];  // (64, S::kN), 16 of the rows a warp
    for_tiles<S>(
        *shared, g, [&](const Place&, bool, int) { multiplier.multiply(sum, g.stages); },
        [&](const Place& place, bool scaled) { store_sums<S>(*shared, g, place, sum, scaled); });
  } else if (warp < kLoader) {
    release_registers<112>();
    const int cutter = warp - kMultipliers;
    cut_tiles<S>(*shared, g, Cutter<S, b_major, true>(cutter / kCutB, cutter % kCutB));
  } else {
    release_registers<80>();
    const int set = warp - kLoader - 1;
    if (set >= 0 && set < kSets) return cut_tiles<S>(*shared, g, Cutter<S, b_major, false>(set, kCutB));
    Producer<S, b_major> producer;
    for_tiles<S>(
        *shared, g,
        [&](const Place& place, bool, int) {
          if (warp == kLoader) producer.load(*shared, maps, g, place);
        },
        [](const Place&, bool) {});
  }
#endif
}

// float32 as it is: box_operand()'s maps round to tf32.
TensorMap map_of(const BoxOperand<float>& o, int sides) {
  const bool in_rows = o.major == Major::k;
  const int64_t plane = o.batch_stride == 0 ? o.rows() * o.row_stride : o.batch_stride;
  return make_tensor_map({o.data, 4, o.columns(), o.rows(), o.batch_stride == 0 ? 1 : o.batch,
                          o.row_stride * 4, plane * 4, 32, in_rows ? sides : Bf16x6::kStageK,
                          in_rows ? Swizzle::bytes128 : Swizzle::none});
}

template <int N, Major b_major>
void launch_decode(const Gemm<float>& g, const BoxOperand<float>& a, const BoxOperand<float>& b, int batch,
                   Context& context) {
  using S = DecodeShape<N>;
  const DecodeTiles tiles = decode_tiles(batch, g.m, g.n, N);
  const int stages = int(ceil_div(g.k, Bf16x6::kStageK));
  const DecodeArguments arguments{g,
                                  tiles,
                                  stages,
                                  a.batch_stride != 0,
                                  b.batch_stride != 0,
                                  Bf16x6Invariant::chunk(stages, 0),
                                  stores_pairs(g.result, batch)};
  const LaunchShape shape{dim3(unsigned(tiles.blocks())), dim3(kThreads), sizeof(typename S::Shared)};
  launch<decode_kernel<S, b_major>>("decode_planes", shape, context)({map_of(a, tiles.rows), map_of(b, N)},
                                                                     arguments);
}

}  // namespace
}  // namespace planes::decode

void decode_by_planes(const Gemm<float>& problem, int batch, Context& context) {
  RowCopies copies;
  const BoxOperand<float> a = activations(problem.side_a(batch), batch, copies, context);
  const BoxOperand<float> b = box_operand(problem.side_b(batch), batch, 1, true, copies, context);
  copies.launch({}, context);
  const bool scales = problem.result.alpha != 1 || problem.result.beta != 0;
  Gemm<float> g = problem;
  if (scales) g.result = sums_in_workspace(problem, batch, context);
  const auto run = [&]<int N, Major b_major>() {
    planes::decode::launch_decode<N, b_major>(g, a, b, batch, context);
  };
  const bool along_k = b.major == Major::k;
  switch (plans::plane_decode_columns(batch, g.m, g.n, along_k, multiprocessors())) {
    case 16:
      run.template operator()<16, Major::k>();
      break;
    case 32:
      along_k ? run.template operator()<32, Major::k>() : run.template operator()<32, Major::mn>();
      break;
    case 64:
      along_k ? run.template operator()<64, Major::k>() : run.template operator()<64, Major::mn>();
      break;
    case 96:
      along_k ? run.template operator()<96, Major::k>() : run.template operator()<96, Major::mn>();
      break;
    default:
      run.template operator()<112, Major::k>();
  }
  if (scales) blend(problem, g.result, batch, context);
}

}  // namespace fastgemm::FASTGEMM_TARGET
