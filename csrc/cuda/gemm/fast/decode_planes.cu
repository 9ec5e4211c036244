// float32 products of few rows, with the bits that bf16x6 gives them where k alone fixes its chunks
// (Bf16x6Invariant, fast/invariant.cu). bf16x6 cuts both operands into planes in memory first, which takes
// many times as long as reading the weights, B, once; here they are cut on the way:
//
//   memory --[TMA, 1 warp]--> raw float32 --[8 warps cut]--> planes --[4 warps, wgmma]--> sums (64, N)
//              a ring of (N, 32) of B and rows of A      the rings of bf16x6 (parts/planes/shape.cuh)
//
//   - Two sets of four warps cut the stages in turn, so that one set's latencies hide behind the other.
//   - The loop over planes is that of bf16x6 (PromotingLoop), on tiles of 64 rows; what the rows that are not
//     there hold is multiplied, too, and never stored. They are cleared once.
//   - Rows and columns whose magnitudes need a scale are known at the end of a tile. Where there is one the
//     tile is computed again, scaled; float32 numbers below 2^-110 are rare.
//   - A sum that is not finite is computed again as repair.cuh does.
//
// No block shares a tile, as in the decode kernel of 16-bit types (fast/invariant.cu).
#include "cuda/gemm/fast/decode.cuh"
#include "cuda/gemm/parts/blend.cuh"
#include "cuda/gemm/parts/float_dot.cuh"
#include "cuda/gemm/parts/planes/cut.cuh"
#include "cuda/gemm/parts/planes/multiply.cuh"
#include "cuda/gemm/parts/ring.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace planes {
namespace {

constexpr int kRows = plans::kDecodeRows;
constexpr int kMultipliers = 4, kSets = 2, kSetWarps = 4, kCutters = kSets * kSetWarps;  // warps
constexpr int kThreads = 32 * (kMultipliers + kCutters + 4);  // whole warpgroups share out the registers
constexpr int kUnits = 4;                                     // of 8 elements, in a stage of a row
constexpr int kRowBytes = 128;

template <int N>
struct DecodeShape : PlaneRings<Bf16x6Invariant, kRows, N, RingSlots<6, 3>> {
  using Rings = PlaneRings<Bf16x6Invariant, kRows, N, RingSlots<6, 3>>;
  static constexpr int kSides = N + kRows;  // columns of B, then rows of A
  static constexpr int kPlaneBytes = Rings::ring_begin(Rings::kRings);
  static constexpr int kRawBytes = kSides * kRowBytes, kRaw = ((212 << 10) - kPlaneBytes) / kRawBytes;

  struct alignas(1024) Shared {
    unsigned char slots[kPlaneBytes];
    unsigned char raw[kRaw][kRawBytes];
    Barrier full[Rings::kSlots], empty[Rings::kSlots];  // of the planes' slots
    RingBarriers<kRaw> loaded;
    uint32_t largest[kSets * kUnits][kSides], smallest_less_1[kSets * kUnits][kSides];  // Magnitudes
    float scale[kSides];
    uint32_t plain[2][kCutters];  // whether nothing that the warp cut needs a scale; of two tiles in turn
  };
  static_assert(kRaw >= 3 && sizeof(Shared) <= 227 << 10);
};

struct DecodeArguments {
  Gemm<float> gemm;
  DecodeTiles tiles;
  int stages;            // of a tile
  int batch_a, batch_b;  // 0 where the batch shares the operand
  int chunk;             // stages that the tensor cores sum before a promotion
  bool pairs;            // two neighbours of a row of C can be stored together
};
struct DecodeMaps {
  TensorMap a, b;
};

template <class S, Major b_major>
class Producer {
 public:
  __device__ __forceinline__ void load(typename S::Shared& shared, const DecodeMaps& maps,
                                       const DecodeArguments& g, const DecodeTiles::Place& place) {
    const bool elected = elect_one();
    FASTGEMM_NO_UNROLL
    for (int step = 0; step < g.stages; ++step)
      shared.loaded.fill(at_, elected, (g.tiles.rows + S::kN) * kRowBytes, [&](int stage, Barrier* full) {
        unsigned char* const to = shared.raw[stage];
        const int k = step * Bf16x6::kStageK, batch_b = place.batch * g.batch_b;
        if constexpr (b_major == Major::k) {
          load_box_evict_first(to, &maps.b, full, k, place.column, batch_b);
        } else {
          FASTGEMM_UNROLL
          for (int j = 0; j < S::kN; j += 32)
            load_box_evict_first(to + j * kRowBytes, &maps.b, full, place.column + j, k, batch_b);
        }
        load_box(to + S::kN * kRowBytes, &maps.a, full, k, place.row, place.batch * g.batch_a);
      });
  }

 private:
  typename RingBarriers<S::kRaw>::Position at_{0, 1};  // a fresh stage counts as emptied
};

// A warp that cuts. Its lanes have units of 8 rows of a matrix along k, where 8 lanes meet 8 different banks
// of the swizzle; of B along n, 32 columns.
template <class S, Major b_major>
class Cutter {
  static constexpr bool kAlongK = b_major == Major::k;
  static constexpr int kStripsB = kAlongK ? (S::kN + 8 * kSetWarps - 1) / (8 * kSetWarps) : S::kN / 32;
  static constexpr int kStrips = kStripsB + kRows / (8 * kSetWarps);  // of the warp, those of A behind B's

 public:
  __device__ __forceinline__ Cutter(int warp) : set_(warp / kSetWarps), warp_(warp % kSetWarps) {
    first_.phase = others_.phase = 1;
  }

  // Cuts the stages of a tile, scaled or not, and notes the magnitudes. Returns whether what this warp saw
  // needs no scale.
  __device__ __forceinline__ bool cut(typename S::Shared& shared, int stages, int rows, bool scaled) {
    Magnitudes magnitudes[kStrips];
    float scale[kStrips];
    FASTGEMM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      scale[i] = 1;
      if (scaled && takes(i, rows)) scale[i] = shared.scale[side(i)];
    }
    FASTGEMM_NO_UNROLL
    for (int stage = 0; stage < stages; ++stage) {
      if (stage % kSets == set_) cut_stage(shared, rows, scale, magnitudes);
      raw_.advance(), first_.advance(), others_.advance();
    }
    bool plain = true;
    FASTGEMM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      if (i < kStripsB || takes(i, kRows)) {
        plain = plain && Bf16x6::needs_no_scale(magnitudes[i]);
        if (!takes(i, kRows)) continue;
        shared.largest[kUnits * set_ + unit(i)][side(i)] = magnitudes[i].largest;
        shared.smallest_less_1[kUnits * set_ + unit(i)][side(i)] = magnitudes[i].smallest_less_1;
      }
    }
    return __all_sync(0xffffffffu, plain);
  }

 private:
  // The lane's row in strip i, of B's columns or behind them, and its unit of k.
  __device__ __forceinline__ int side(int i) const {
    if (i >= kStripsB) return S::kN + 8 * (warp_ + kSetWarps * (i - kStripsB)) + fresh_lane() % 8;
    return kAlongK ? 8 * (warp_ + kSetWarps * i) + fresh_lane() % 8 : 32 * i + fresh_lane();
  }
  __device__ __forceinline__ int unit(int i) const {
    return kAlongK || i >= kStripsB ? fresh_lane() / 8 : warp_;
  }
  // Whether strip i is one, where A has so many rows: the same in all lanes.
  __device__ __forceinline__ bool takes(int i, int rows) const {
    if (i >= kStripsB) return 8 * (warp_ + kSetWarps * (i - kStripsB)) < rows;
    return !kAlongK || 8 * (warp_ + kSetWarps * i) < S::kN;
  }

  // Waits for the rings in this order: a slot of the others that is empty says that all warps have cut the
  // stages up to three before, so that no barrier is two phases behind the one that is waited for.
  __device__ __forceinline__ void cut_stage(typename S::Shared& shared, int rows,
                                            const float (&scale)[kStrips],
                                            Magnitudes (&magnitudes)[kStrips]) {
    wait_phase(others_.empty(shared), others_.phase);
    wait_phase(first_.empty(shared), first_.phase);
    wait_phase(&shared.loaded.full[raw_.stage], raw_.phase);
    const unsigned char* const raw = shared.raw[raw_.stage];
    FASTGEMM_UNROLL
    for (int i = 0; i < kStrips; ++i) {
      if (!takes(i, rows)) continue;
      uint32_t words[8], planes[Bf16x6::kPlanes][4];
      load(words, raw, i);
      FASTGEMM_UNROLL
      for (uint32_t& word : words) {
        magnitudes[i].template add<true>(word);
        word = __float_as_uint(__uint_as_float(word) * scale[i]);
      }
      Bf16x6::cut(words, planes);
      store(shared, planes, i);
    }
    fence_async_shared();
    __syncwarp();
    if (fresh_lane() != 0) return;
    arrive(first_.full(shared)), arrive(others_.full(shared));
    arrive(&shared.loaded.empty[raw_.stage]);
  }

  __device__ __forceinline__ void load(uint32_t (&words)[8], const unsigned char* raw, int i) const {
    if (kAlongK || i >= kStripsB) {
      FASTGEMM_UNROLL
      for (int j = 0; j < 2; ++j) {
        const uint32_t plain = uint32_t(side(i) * kRowBytes + unit(i) * 32 + j * 16);
        const auto four = load_vector<Unit>(raw + swizzled<Swizzle::bytes128>(plain));
        FASTGEMM_UNROLL
        for (int e = 0; e < 4; ++e) words[4 * j + e] = four[e];
      }
    } else {
      const unsigned char* const from = raw + (32 * i + unit(i) * 8) * kRowBytes + fresh_lane() * 4;
      FASTGEMM_UNROLL
      for (int e = 0; e < 8; ++e) words[e] = *reinterpret_cast<const uint32_t*>(from + e * kRowBytes);
    }
  }

  // To the images of the slots: (units, rows or columns, 16 bytes) of each plane (cut.cuh).
  __device__ __forceinline__ void store(typename S::Shared& shared,
                                        const uint32_t (&planes)[Bf16x6::kPlanes][4], int i) const {
    const bool of_a = i >= kStripsB;
    const int bytes = of_a ? S::kPlaneA : S::kPlaneB, sides = of_a ? kRows : S::kN;
    const int at = (unit(i) * sides + side(i) - (of_a ? S::kN : 0)) * 16;
    unsigned char* const first = first_.bytes(shared) + (of_a ? 0 : S::kPlaneA) + at;
    unsigned char* const others = others_.bytes(shared) + (of_a ? 0 : 2 * S::kPlaneA) + at;
    FASTGEMM_UNROLL
    for (int p = 0; p < Bf16x6::kPlanes; ++p)
      store_vector(p == 0 ? first : others + (p - 1) * bytes,
                   Unit{{planes[p][0], planes[p][1], planes[p][2], planes[p][3]}});
  }

  int set_, warp_;
  typename RingBarriers<S::kRaw>::Position raw_{0, 0};
  RingPosition<S, 0> first_;
  RingPosition<S, 1> others_;
};

// Rows [first, kRows) of A in every slot.
template <class S>
__device__ __forceinline__ void clear_rows(typename S::Shared& shared, int first) {
  const int rows = kRows - first;
  constexpr int kPlanesInAll = S::slots(0) + 2 * S::slots(1);
  for (int i = int(threadIdx.x); i < kPlanesInAll * kUnits * rows; i += kThreads) {
    const int plane = i / (kUnits * rows), unit = i / rows % kUnits, row = first + i % rows;
    const int other = plane - S::slots(0), slot = other < 0 ? plane : other / 2;
    const int from = other < 0 ? slot * S::template kSlotBytes<0>
                               : S::ring_begin(1) + slot * S::template kSlotBytes<1> + other % 2 * S::kPlaneA;
    store_vector(shared.slots + from + (unit * kRows + row) * 16, Unit{});
  }
  fence_async_shared();
}

// The scales of a tile, from the magnitudes that the cutters noted.
template <class S>
__device__ __forceinline__ void find_scales(typename S::Shared& shared) {
  for (int i = int(threadIdx.x); i < S::kSides; i += kThreads) {
    Magnitudes all;
    FASTGEMM_UNROLL
    for (int part = 0; part < kSets * kUnits; ++part)
      all.add({shared.largest[part][i], shared.smallest_less_1[part][i]});
    shared.scale[i] = Bf16x6::scale_of(all);
  }
}

// As repair_strip() of repair.cuh adds.
__device__ __forceinline__ float sum_again(const Gemm<float>& g, int64_t row, int64_t column) {
  constexpr int kK = 32;
  float sum = 0;
  FASTGEMM_NO_UNROLL
  for (int64_t first = 0; first < g.k; first += kK) {
    float part = 0;
    const int64_t end = min(g.k, first + kK);
    FASTGEMM_NO_UNROLL
    for (int64_t k = first; k < end; ++k) part = multiply_add(*g.a.at(row, k), *g.b.at(k, column), part);
    sum += part;
  }
  return sum;
}

template <class S>
__device__ __forceinline__ void store_sums(const typename S::Shared& shared, const DecodeArguments& g,
                                           const DecodeTiles::Place& place, float (&sum)[S::kSums],
                                           bool scaled) {
  const Gemm<float> here = g.gemm.at_batch(place.batch);
  float* const out = static_cast<float*>(here.result.out);
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; i += 2) {
    const Position p = WgmmaLayout<BFloat16>::c(int(threadIdx.x), i);
    const int row = place.row + p.row, column = place.column + p.column;
    if (row >= here.m || column >= here.n) continue;
    const int count = column + 1 < here.n ? 2 : 1;
    float value[2];
    FASTGEMM_UNROLL
    for (int e = 0; e < 2; ++e) {
      value[e] = sum[i + e];
      if (scaled)
        value[e] = value[e] * (1.f / shared.scale[S::kN + p.row]) * (1.f / shared.scale[p.column + e]);
      if (e < count && !is_finite(value[e])) value[e] = sum_again(here, row, column + e);
    }
    float* const to = out + row * here.result.row_stride + column;
    if (g.pairs && count == 2)
      store_vector(to, Vector<float, 2>{{value[0], value[1]}});
    else
      for (int e = 0; e < count; ++e) to[e] = value[e];
  }
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
  const auto nothing = [](const Place&, bool) {};
  const int warp = warp_index();
  if (warp < kMultipliers) {
    claim_registers<208>();
    PromotingLoop<S> multiplier(*shared, 0, g.chunk);
    float sum[S::kSums];  // (64, S::kN), 16 of the rows a warp
    for_tiles<S>(
        *shared, g, [&](const Place&, bool, int) { multiplier.multiply(sum, g.stages); },
        [&](const Place& place, bool scaled) { store_sums<S>(*shared, g, place, sum, scaled); });
  } else if (warp < kMultipliers + kCutters) {
    release_registers<112>();
    Cutter<S, b_major> cutter(warp - kMultipliers);
    for_tiles<S>(
        *shared, g,
        [&](const Place&, bool scaled, int turn) {
          const bool plain = cutter.cut(*shared, g.stages, g.tiles.rows, scaled);
          if (!scaled && fresh_lane() == 0) shared->plain[turn][warp - kMultipliers] = plain;
        },
        nothing);
  } else {
    release_registers<40>();
    Producer<S, b_major> producer;
    const bool loads = warp == kMultipliers + kCutters;
    for_tiles<S>(
        *shared, g,
        [&](const Place& place, bool, int) {
          if (loads) producer.load(*shared, maps, g, place);
        },
        nothing);
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
}  // namespace planes

void decode_by_planes(const Gemm<float>& problem, int batch, Context& context) {
  RowCopies copies;
  const BoxOperand<float> a = activations(problem.side_a(batch), batch, copies, context);
  const BoxOperand<float> b = box_operand(problem.side_b(batch), batch, 1, true, copies, context);
  copies.launch({}, context);
  const bool scales = problem.result.alpha != 1 || problem.result.beta != 0;
  Gemm<float> g = problem;
  if (scales) g.result = sums_in_workspace(problem, batch, context);
  const auto run = [&]<int N, Major b_major>() {
    planes::launch_decode<N, b_major>(g, a, b, batch, context);
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
