// float32 products of few rows. Their bits are those of Bf16x6Invariant (fast/invariant.cu): bf16x6 with
// chunks that depend only on k. bf16x6 first cuts both operands into planes in memory, which takes many times
// as long as reading B, the weights, once. Here only the few rows of A are cut first. The weights are cut on
// their way to the tensor cores:
//
//   rows of A --[cut_kernel]--> planes --[a warp, bulk copies]--> shared memory --> wgmma's second operand
//   weights ---------[a warp, TMA]----> float32 in shared memory --[teams cut]--> registers, its first one
//
//   - The operands change places: columns of B are wgmma's 64 rows. A warp cuts them into the registers of
//     its own instructions, so no plane of the weights is written to memory. The products are summed in the
//     same order. On an H200 the sums are the same whichever operand comes first, also with an operand in
//     registers; a test checks this (tests/kernels/test_invariant.py). Where a multiprocessor has 32 columns,
//     half of each instruction computes nothing useful. That costs no time, because instructions on so few
//     rows wait for each other.
//   - An instruction that adds to the sum of the one before it takes 43 cycles, however few rows it has, and
//     a chunk of k is a chain of up to 36 of them. So two or three teams of four warps sum chunks at the same
//     time, and then add them up in order, one team after another (decode_planes.cuh).
//   - A block learns only at the end of a tile which of its columns need a scale. If one does, the block
//     computes its tiles again with the scales. That is rare: it takes float32 numbers below 2^-110.
//   - A warp computes each sum that is not finite again, with the bits that repair.cuh gives it.
//
// No tile is shared by blocks, as in the decode kernel of 16-bit types (fast/invariant.cu).
#include "cuda/gemm/fast/decode_planes.cuh"
#include "cuda/gemm/parts/epilogues/blend.cuh"
#include "cuda/gemm/parts/float_dot.cuh"
#include "cuda/gemm/parts/planes/engine.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace planes::decode {
namespace {

// Computes an element again by a warp, in the order of repair_strip() (repair.cuh): each lane sums 32
// products, and the lanes' sums are added in turn.
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

// The place in the tile of a thread's sum i. wgmma's rows are columns here.
template <class S>
__device__ __forceinline__ Position place_of_sum(int warp, int lane, int i) {
  const Position p = WgmmaLayout<BFloat16>::c(lane, i);
  return {p.column, p.row < S::kOfWarp ? warp * S::kOfWarp + p.row : S::kColumns};
}
template <class S>
__device__ __forceinline__ constexpr bool is_used(int i) {
  return i / 2 % 2 < S::kHalves;
}

// Computes the sums of the warp that are not finite again. Bit i of a lane's `wrong` marks its sum i.
template <class S>
__device__ __forceinline__ void repair_sums(const Gemm<float>& g, const DecodeTiles::Place& place, int warp,
                                            uint32_t wrong) {
  static_assert(S::kSums <= 32);
  FASTGEMM_NO_UNROLL
  for (int i = 0; i < S::kSums; ++i) {
    const uint32_t lanes = __ballot_sync(0xffffffffu, wrong >> i & 1);
    FASTGEMM_NO_UNROLL
    for (int lane = 0; lane < 32; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      const Position p = place_of_sum<S>(warp, lane, i);
      const int row = place.row + p.row, column = place.column + p.column;
      const float sum = sum_again(g, row, column);
      if (fresh_lane() == 0) g.result.store(row, column, sum);
    }
  }
}

// Stores a warp's sums, whose columns were multiplied by `scale`.
template <class S>
__device__ __forceinline__ void store_sums(const Arguments& g, const DecodeTiles::Place& place, int warp,
                                           const float (&sum)[S::kSums], const float (&scale)[S::kHalves]) {
  const Gemm<float> here = g.gemm.at_batch(place.batch);
  const float* const unscale = g.unscale + int64_t(place.batch) * g.batch_a * g.rows_of_a;
  float* const out = static_cast<float*>(here.result.out);
  uint32_t wrong = 0;
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; ++i) {
    if (!is_used<S>(i)) continue;
    const Position p = place_of_sum<S>(warp, fresh_lane(), i);
    const int row = place.row + p.row, column = place.column + p.column;
    if (row >= here.m || column >= here.n || p.column >= S::kColumns) continue;
    const float x = sum[i] * unscale[row] * (1.f / scale[i / 2 % 2]);
    if (!is_finite(x)) wrong |= 1u << i;
    out[row * here.result.row_stride + column] = x;
  }
  if (!__any_sync(0xffffffffu, wrong != 0)) return;
  __syncwarp();
  repair_sums<S>(here, place, warp, wrong);
}

// What is done with a tile. All tiles are plain at first. If a column of any of them may need a scale, each
// is computed twice more: once to find the scales and once with them.
enum class Pass { plain, finds_scales, scaled };

// Calls body(place, pass) for each pass over each tile of the block. The body is compiled once, whatever the
// passes.
template <class S, class Body>
__device__ __forceinline__ void for_passes(const typename S::Shared& shared, const Arguments& g,
                                           Body&& body) {
  Pass first = Pass::plain, last = Pass::plain;
  while (true) {
    FASTGEMM_NO_UNROLL
    for (int tile = int(blockIdx.x); tile < g.tiles.count; tile += int(gridDim.x)) {
      FASTGEMM_NO_UNROLL
      for (int pass = int(first); pass <= int(last); ++pass)
        body(g.tiles.template place_of<S::kColumns>(tile), Pass(pass));
    }
    if (last == Pass::scaled) return;
    __syncwarp();
    named_barrier(1, 32 * (S::kWarps + 2));
    if (__all_sync(0xffffffffu, shared.scales[fresh_lane() % S::kWarps] == 0)) return;
    first = Pass::finds_scales, last = Pass::scaled;
  }
}

template <class S, Major b_major>
__device__ __forceinline__ void load_weights(typename S::Shared& shared, const TensorMap& map,
                                             const Arguments& g) {
  const bool elected = elect_one();
  SlotPosition at{0, S::used(S::kWeightsSlots, g.chunk), 1};  // a new slot counts as empty
  const int slots = g.chunks() * g.chunk;
  for_passes<S>(shared, g, [&](const DecodeTiles::Place& place, Pass) {
    const int batch = place.batch * g.batch_b;
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < slots; ++step, at.advance()) {
      Barrier* const full = &shared.weights_ring.full[at.slot];
      unsigned char* const to = shared.weights[at.slot];
      wait_phase(&shared.weights_ring.empty[at.slot], at.phase);
      if (!elected) continue;
      if (step >= g.stages) {
        arrive(full);
        continue;
      }
      arrive_expecting(full, S::kWeightsBytes);
      if constexpr (b_major == Major::k) {
        load_box_evict_first(to, &map, full, step * kStageK, place.column, batch);
      } else {
        FASTGEMM_UNROLL
        for (int j = 0; j < S::kColumns; j += 32)
          load_box_evict_first(to + j * kRowBytes, &map, full, place.column + j, step * kStageK, batch);
      }
    }
  });
}

template <class S>
__device__ __forceinline__ void load_rows(typename S::Shared& shared, const Arguments& g) {
  const bool elected = elect_one();
  SlotPosition at{0, S::used(S::kRowsSlots, g.chunk), 1};
  const int slots = g.chunks() * g.chunk;
  for_passes<S>(shared, g, [&](const DecodeTiles::Place& place, Pass) {
    const int64_t tile = int64_t(place.batch) * g.batch_a * g.tiles.tiles_m + place.row / plans::kDecodeRows;
    const unsigned char* from = g.rows + tile * g.stages * S::kRowsBytes;
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < slots; ++step, at.advance()) {
      Barrier* const full = &shared.rows_ring.full[at.slot];
      wait_phase(&shared.rows_ring.empty[at.slot], at.phase);
      if (!elected) continue;
      if (step >= g.stages) {
        arrive(full);
        continue;
      }
      arrive_expecting(full, S::kRowsBytes);
      load_bytes(shared.rows[at.slot], from, S::kRowsBytes, full);
      from += S::kRowsBytes;
    }
  });
}

// Combines the magnitudes of the four lanes that have the same columns, in all four.
template <int halves>
__device__ __forceinline__ void join_lanes(Magnitudes (&magnitudes)[halves]) {
  FASTGEMM_UNROLL
  for (Magnitudes& m : magnitudes) {
    FASTGEMM_UNROLL
    for (int lanes = 1; lanes < 4; lanes *= 2)
      m.add({__shfl_xor_sync(0xffffffffu, m.largest, lanes),
             __shfl_xor_sync(0xffffffffu, m.smallest_less_1, lanes)});
  }
}

// Finds the scales of a lane's columns from the magnitudes that all teams have seen.
template <class S, Major b_major>
__device__ __forceinline__ void find_scales(typename S::Shared& shared, int team, int warp,
                                            Magnitudes (&magnitudes)[S::kHalves],
                                            float (&scale)[S::kHalves]) {
  join_lanes(magnitudes);
  constexpr int kBarrier = 2, kThreads = 32 * S::kWarps;
  FASTGEMM_UNROLL
  for (int h = 0; h < S::kHalves; ++h) {
    if (fresh_lane() % 4 != 0 || fresh_lane() / 4 + 8 * h >= S::kOfWarp) continue;
    const int column = Weights<S, b_major>::column_of(warp, fresh_lane(), h);
    shared.largest[team][column] = magnitudes[h].largest;
    shared.smallest_less_1[team][column] = magnitudes[h].smallest_less_1;
  }
  named_barrier(kBarrier, kThreads);
  FASTGEMM_UNROLL
  for (int h = 0; h < S::kHalves; ++h) {
    const int column = Weights<S, b_major>::column_of(warp, fresh_lane(), h);
    Magnitudes all;
    FASTGEMM_UNROLL
    for (int t = 0; t < S::kTeams; ++t)
      all.add({shared.largest[t][column], shared.smallest_less_1[t][column]});
    scale[h] = Scheme::scale_of(all);
  }
  named_barrier(kBarrier, kThreads);
}

template <class S, Major b_major>
__device__ __forceinline__ void multiply(typename S::Shared& shared, const Arguments& g, int team, int warp) {
  Multiplier<S, b_major> multiplier(shared, g, team, warp, fresh_lane());
  float scale[S::kHalves];  // the scales of a lane's columns
  Magnitudes magnitudes[S::kHalves];
  for_passes<S>(shared, g, [&](const DecodeTiles::Place& place, Pass pass) {
    if (pass != Pass::scaled) {
      FASTGEMM_UNROLL
      for (int h = 0; h < S::kHalves; ++h) scale[h] = 1, magnitudes[h] = {};
    }
    multiplier.multiply(scale, magnitudes, [&](const float(&sum)[S::kSums]) {
      if (pass != Pass::finds_scales) store_sums<S>(g, place, warp, sum, scale);
    });
    if (pass == Pass::finds_scales) find_scales<S, b_major>(shared, team, warp, magnitudes, scale);
    if (pass != Pass::plain) return;
    bool plain = true;
    FASTGEMM_UNROLL
    for (const Magnitudes& m : magnitudes) plain = plain && Scheme::needs_no_scale(m);
    if (!__all_sync(0xffffffffu, plain) && fresh_lane() == 0) shared.scales[team * kTeamWarps + warp] = 1;
  });
}

template <class S, Major b_major>
__global__ void __launch_bounds__(S::kThreads, 1)
    decode_kernel(const __grid_constant__ TensorMap weights, const __grid_constant__ Arguments g) {
#if FASTGEMM_SM90A
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  const int warp = warp_index();
  if (threadIdx.x == S::kThreads - 1) prefetch_map(&weights);
  if (threadIdx.x == 0) {
    shared->weights_ring.init(1, kTeamWarps);
    shared->rows_ring.init(1, kTeamWarps);
    for (auto& of_team : shared->turn)
      for (Barrier& of_warp : of_team) init_barrier(&of_warp, 1);
    for (uint32_t& of_warp : shared->scales) of_warp = 0;
    fence_barrier_init();
  }
  __syncthreads();
  if (warp >= S::kWarps) {
    release_registers<S::kFewRegisters>();
    // The weights do not wait for the launch before, which cuts the rows.
    if (warp == S::kWarps) return load_weights<S, b_major>(*shared, weights, g);
    grid_dependency_wait();
    if (warp == S::kWarps + 1) load_rows<S>(*shared, g);
  } else {
    claim_registers<S::kManyRegisters>();
    grid_dependency_wait();
    multiply<S, b_major>(*shared, g, warp / kTeamWarps, warp % kTeamWarps);
  }
#endif
}

// A TMA descriptor that loads float32 unchanged: BoxOperand::map() rounds it to tf32.
TensorMap map_of(const BoxOperand<float>& o, int columns) {
  const bool along_k = o.major == Major::k;
  const int64_t plane = o.batch_stride == 0 ? o.rows() * o.row_stride : o.batch_stride;
  return make_tensor_map({o.data, 4, o.columns(), o.rows(), o.batch_stride == 0 ? 1 : o.batch,
                          o.row_stride * 4, plane * 4, 32, along_k ? columns : kStageK, Swizzle::bytes128});
}

template <class S, Major b_major>
void launch_decode(const Gemm<float>& g, const BoxOperand<float>& b, int batch, Context& context) {
  static_assert(Scheme::Tiles::kEvery, "cut_kernel can leave out groups of rows only");
  const int matrices = g.a.batch_stride == 0 ? 1 : batch;
  CutArguments<Scheme> cut{};
  cut.a = make_source<Scheme>(side_a(g, batch), matrices, S::kN, context);
  cut.matrices_a = matrices, cut.blocks_a = matrices * cut.a.blocks(1);
  const int64_t units = ceil_div(g.k, kOneUnit);  // one thread for each, in whole warps
  const LaunchShape of_rows{dim3(unsigned(cut.blocks_a)),
                            dim3(unsigned(std::min<int64_t>(kMostCutThreads, ceil_div(units, 32) * 32)))};
  launch<cut_kernel<Scheme, kOneUnit, 1>>("cut", of_rows, context)(cut);
  const DecodeTiles tiles = decode_tiles(batch, g.m, g.n, S::kColumns);
  const Arguments arguments{g,
                            tiles,
                            cut.a.images,
                            cut.a.unscale,
                            cut.a.rows(),
                            cut.a.stages,
                            matrices > 1,
                            b.batch_stride != 0,
                            Scheme::chunk(cut.a.stages, 0)};
  const LaunchShape shape{dim3(unsigned(tiles.blocks())), dim3(S::kThreads), sizeof(typename S::Shared),
                          true};
  launch<decode_kernel<S, b_major>>("decode_planes", shape, context)(map_of(b, S::kColumns), arguments);
}

// The smallest tile height that holds C's rows, or the largest one that is compiled.
int tile_rows(int64_t m) { return m <= 8 ? 8 : m <= 32 ? 32 : plans::kDecodeRows; }

// Computes the matrices of a batch whose planes are in memory at the same time.
void decode_part(const Gemm<float>& problem, int batch, Context& context) {
  RowCopies copies;
  const BoxOperand<float> b = box_operand(side_b(problem, batch), batch, 1, true, copies, context);
  copies.launch({}, context);
  const bool scales = problem.result.alpha != 1 || problem.result.beta != 0;
  Gemm<float> g = problem;
  if (scales) g.result = sums_in_workspace(problem, batch, context);
  const auto run = [&]<int columns, Major b_major>() {
    const int rows = tile_rows(g.m);
    rows == 8    ? launch_decode<Shape<8, columns>, b_major>(g, b, batch, context)
    : rows == 32 ? launch_decode<Shape<32, columns>, b_major>(g, b, batch, context)
                 : launch_decode<Shape<64, columns>, b_major>(g, b, batch, context);
  };
  const bool along_k = b.major == Major::k;
  switch (plans::plane_decode_columns(batch, g.m, g.n, along_k, multiprocessors())) {
    case 16:
      run.template operator()<16, Major::k>();
      break;
    case 32:
      along_k ? run.template operator()<32, Major::k>() : run.template operator()<32, Major::mn>();
      break;
    case 48:
      run.template operator()<48, Major::k>();
      break;
    case 56:
      run.template operator()<56, Major::k>();
      break;
    default:
      along_k ? run.template operator()<64, Major::k>() : run.template operator()<64, Major::mn>();
  }
  if (scales) blend(problem, g.result, batch, context);
}

}  // namespace
}  // namespace planes::decode

void decode_by_planes(const Gemm<float>& problem, int batch, Context& context) {
  using namespace planes::decode;
  const int64_t rows = tile_rows(problem.m), k = ceil_div(problem.k, kStageK) * kStageK;
  const int64_t bytes = ceil_div(problem.m, rows) * rows * k * kPlanes * int64_t(sizeof(BFloat16));
  planes::in_batch_parts(problem, batch, bytes, context,
                         [](const Gemm<float>& g, int count, ReusedWorkspace& workspace) {
                           workspace.begin_again();
                           decode_part(g, count, workspace);
                         });
}

}  // namespace fastgemm::FASTGEMM_TARGET
