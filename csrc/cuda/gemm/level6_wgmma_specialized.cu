// Level 6 on Hopper at full speed. What changes from `wgmma`:
//   - warps have roles. One producer warp does nothing but ask for copies, up to four stages ahead; two
//   consumer
//     warpgroups do nothing but multiply. Stages are handed over through a pair of barriers each, full and
//     empty, so that nobody waits for the whole block. The producers' registers go to the consumers
//     (setmaxnreg);
//   - 64 x 256 sums a warpgroup: an instruction reads 10 KB of shared memory in 128 cycles, where 64 x 128
//   reads
//     6 KB in 64, and the block tile 128 x 256 needs a quarter less of L2 than 128 x 128;
//   - one block a multiprocessor stays for all its tiles. While one warpgroup stores a tile, asynchronously
//   and
//     through boxes of its own, the other multiplies and the copies for the next tile arrive;
//   - tiles come in bands, so that those under way together share rows of A and columns of B in L2, and the
//   last
//     waves are shared evenly where that pays (level5_stream_k.cuh).
#include "cuda/gemm/level5_choice.cuh"
#include "cuda/gemm/level5_stream_k.cuh"
#include "cuda/gemm/level6_blend.cuh"
#include "cuda/gemm/level6_operand.cuh"
#include "cuda/gemm/level6_store.cuh"
#include "cuda/gemm/levels.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kConsumers = 2, kConsumerWarps = 4 * kConsumers;  // warpgroups
constexpr int kThreads = 128 * (kConsumers + 1);
constexpr int kBand = 16;  // tile rows: with 132 blocks about as many rows of A as columns of B at a time
constexpr int kChunk = 4;  // stages: at least that many of a tile follow each other in a block

// Block tile (kM, kN), 64 rows of it a consumer warpgroup, and the ring of stages. The narrow tile is 10 %
// slower, and for products that fill few multiprocessors with wide ones.
template <int N>
struct Shape {
  static constexpr int kM = 128, kN = N;
  static constexpr int kSums = kN / 2;  // of a consumer thread
  static constexpr int kStageBytes = (kM + kN) * 128, kStages = (192 << 10) / kStageBytes;

  struct Shared {
    unsigned char stage[kStages][kStageBytes];  // (kM, kK) of A, then (kN, kK) of B
    StagingBoxes staging[kConsumerWarps];
    Barrier full[kStages], empty[kStages];
  };
  static_assert(sizeof(Shared) <= 227 << 10);
};
using Wide = Shape<256>;    // 4 stages
using Narrow = Shape<128>;  // 6 stages

template <class T>
struct Arguments {
  Result<T> result;
  int64_t m, n;
  int tiles_m, tiles_n;
  int batch_a, batch_b;      // 0 where the batch shares the operand
  int stages;                // of a tile
  StreamK work;              // in chunks
  Accumulator<T>* partials;  // a block's sums of the tile that it could not finish
  uint32_t* flags;           // [block][warpgroup], 1: they are there
};

// Tiles are cut into parts of whole chunks. A tile's last chunk has what is left, up to 7 stages.
template <class T>
__device__ __forceinline__ int stages_of(const Part& part, const Arguments<T>& g) {
  return (part.end == g.work.steps ? g.stages : part.end * kChunk) - part.first * kChunk;
}

// Where a tile lies: bands of kBand tile rows, column by column.
template <class S>
struct TilePlace {
  int batch, row, column;  // in elements of C

  __device__ __forceinline__ TilePlace(int tile, int tiles_m, int tiles_n) {
    batch = tile / (tiles_m * tiles_n);
    const int within = tile - batch * tiles_m * tiles_n, band = within / (kBand * tiles_n);
    const int rows = min(tiles_m - band * kBand, kBand), in_band = within - band * kBand * tiles_n;
    column = in_band / rows * S::kN;
    row = (band * kBand + in_band % rows) * S::kM;
  }
};

// Walks around the ring; the phase flips at each turn.
template <class S>
struct RingPosition {
  int stage = 0;
  uint32_t phase;
  __device__ __forceinline__ void advance() {
    if (++stage == S::kStages) stage = 0, phase ^= 1;
  }
};

template <class S, class A, class B, class T>
__device__ __forceinline__ void produce(typename S::Shared& shared, const TensorMap& a, const TensorMap& b,
                                        const Arguments<T>& g, Parts parts) {
  const bool elected = elect_one();
  RingPosition<S> at{0, 1};  // a fresh stage counts as emptied
  Part part;
  while (parts.next(part)) {
    const TilePlace<S> place(part.tile, g.tiles_m, g.tiles_n);
    const int first = part.first * kChunk, end = first + stages_of(part, g);
    FASTGEMM_NO_UNROLL
    for (int step = first; step < end; ++step) {
      wait_phase(&shared.empty[at.stage], at.phase);
      if (elected) {
        Barrier* const full = &shared.full[at.stage];
        unsigned char* const stage = shared.stage[at.stage];
        arrive_expecting(full, A::kBytes + B::kBytes);
        A::load(stage, &a, full, place.row, step * A::kK, place.batch * g.batch_a);
        B::load(stage + A::kBytes, &b, full, place.column, step * B::kK, place.batch * g.batch_b);
      }
      at.advance();
    }
  }
}

// Sums lie in the workspace as [four registers][thread]: every access is 16 bytes a lane and full lines.
template <class S, class T>
__device__ __forceinline__ Accumulator<T>* partials_of(const Arguments<T>& g, int block) {
  return g.partials + int64_t(block) * S::kM * S::kN + threadIdx.x * 4;
}
constexpr int kPartialStep = 4 * 128 * kConsumers;

template <class S, class T>
__device__ __forceinline__ void hand_over(const Arguments<T>& g, const Accumulator<T> (&sum)[S::kSums],
                                          int warpgroup) {
  Accumulator<T>* const to = partials_of<S>(g, int(blockIdx.x));
  FASTGEMM_UNROLL
  for (int i = 0; i < S::kSums; i += 4)
    store_vector(to + i / 4 * kPartialStep,
                 Vector16<Accumulator<T>>{{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
  named_barrier(1 + warpgroup, 128);
  if (warp_index() % 4 == 0) store_release(&g.flags[int(blockIdx.x) * kConsumers + warpgroup], 1);
}

template <class S, class T>
__device__ __forceinline__ void collect(const Arguments<T>& g, Accumulator<T> (&sum)[S::kSums],
                                        const Part& part, int warpgroup) {
  const int64_t tile_begin = int64_t(part.tile - g.work.whole_tiles) * g.work.steps;
  int block = int(blockIdx.x);
  do {
    --block;
    while (__any_sync(0xffffffffu, load_acquire(&g.flags[block * kConsumers + warpgroup]) == 0)) spin_wait();
    const Accumulator<T>* const from = partials_of<S>(g, block);
    FASTGEMM_UNROLL
    for (int i = 0; i < S::kSums; i += 4) {
      const auto v = load_vector<Vector16<Accumulator<T>>>(from + i / 4 * kPartialStep);
      FASTGEMM_UNROLL
      for (int j = 0; j < 4; ++j) sum[i + j] += v[j];
    }
  } while (g.work.begin(block) > tile_begin);
}

template <class S, class E, class A, class B, Major a_major, Major b_major, class Out, class T>
__device__ __forceinline__ void consume(typename S::Shared& shared, const TensorMap& out,
                                        const Arguments<T>& g, Parts parts, int warp) {
  const int warpgroup = warp / 4, lane = int(threadIdx.x) % 32;
  const MatrixDescriptor a = A::descriptor(shared.stage[0], 64 * warpgroup);
  const MatrixDescriptor b = B::descriptor(shared.stage[0] + A::kBytes);
  Accumulator<E> sum[S::kSums];  // (64, S::kN), a warp 16 rows of them
  HeldBoxes<Out, S::kSums> boxes(BoxStore(shared.staging[warp], &out));
  RingPosition<S> at{0, 0};
  Part part;
  while (parts.next(part)) {
    Barrier* before = nullptr;
    const auto multiply = [&](bool accumulate) {
      wait_phase(&shared.full[at.stage], at.phase);
      const int bytes = at.stage * (A::kBytes + B::kBytes);
      wgmma_fence(sum);
      multiply_tiles<E, A, B, a_major, b_major>(sum, a.at(bytes), b.at(bytes), accumulate);
      wgmma_commit();
    };
    const auto release = [&](bool was_one_before) {
      wgmma_wait<1>();  // the stage before has been read
      if (lane == 0 && was_one_before) arrive(before);
      before = &shared.empty[at.stage];
      at.advance();
    };
    FASTGEMM_UNROLL
    for (int i = 0; i < kChunk; ++i) {
      multiply(i > 0);
      if (i < boxes.kHeld) boxes.store(i);
      release(i > 0);
    }
    FASTGEMM_NO_UNROLL
    for (int left = stages_of(part, g) - kChunk; left > 0; --left) {
      multiply(true);
      release(true);
    }
    wgmma_wait<0>(sum);
    if (lane == 0) arrive(before);
    if (part.end != g.work.steps) {
      hand_over<S>(g, sum, warpgroup);
      continue;
    }
    if (part.first != 0) collect<S>(g, sum, part, warpgroup);
    const TilePlace<S> place(part.tile, g.tiles_m, g.tiles_n);
    boxes.take(sum, g.result.alpha, {place.row + 16 * warp, place.column, place.batch});
  }
  boxes.store_all();
  wait_stores_read<0>();
}

template <class S, class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_wgmma_specialized_kernel(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b,
                                  const __grid_constant__ TensorMap out,
                                  const __grid_constant__ Arguments<T> g) {
#if FASTGEMM_SM90A
  using E = TensorCoreElement<T>;
  using A = OperandTile<E, a_major, S::kM>;
  using B = OperandTile<E, b_major, S::kN>;
  FASTGEMM_DYNAMIC_SHARED(typename S::Shared, shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(&shared->full[i], 1);
      init_barrier(&shared->empty[i], kConsumerWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int warp = warp_index();
  const Parts parts(g.work, int(blockIdx.x), int(gridDim.x));
  if (warp >= kConsumerWarps) {
    release_registers<40>();
    if (warp == kConsumerWarps) produce<S, A, B>(*shared, a, b, g, parts);
  } else {
    claim_registers<232>();
    const auto consume_to = [&]<class Out>() {
      consume<S, E, A, B, a_major, b_major, Out>(*shared, out, g, parts, warp);
    };
    if constexpr (Result<T>::kMayBeWide) {
      if (g.result.wide) return consume_to.template operator()<float>();
    }
    consume_to.template operator()<typename Result<T>::Narrow>();
  }
#endif
}

__global__ void clear_flags_kernel(uint32_t* flags, int count) {
  for (int i = int(threadIdx.x); i < count; i += int(blockDim.x)) flags[i] = 0;
}

// C in boxes of 16 rows x 128 bytes.
template <class T>
TensorMap map_of(const Result<T>& r, int64_t m, int64_t n, int batch) {
  const int64_t bytes = r.out_bytes();
  const int64_t plane = batch == 1 ? m * r.row_stride : r.batch_stride;
  return make_tensor_map({r.out, int(bytes), n, m, batch, r.row_stride * bytes, plane * bytes,
                          int(128 / bytes), kBoxRows, Swizzle::bytes128});
}
// Shares the tiles of the last wave where that saves more than it costs: the sums of a tile's other blocks
// are added one after the other.
StreamK plan(int64_t tiles, int chunks, int blocks) {
  const int64_t waves = tiles / blocks, left = tiles % blocks;
  constexpr double kHandOver = 2, kCollect = 1;  // chunks
  const double shared =
      left == 0 ? 0 : double(left) * chunks / blocks + kHandOver + kCollect * blocks / double(left);
  StreamK s;
  s.whole_tiles = int(left > 0 && shared < chunks ? waves * blocks : tiles);
  s.steps = chunks;
  const int64_t all = (tiles - s.whole_tiles) * chunks;
  s.share = all / blocks;
  s.longer = int(all % blocks);
  return s;
}

template <class S, class T>
void launch_tiles(const Gemm<T>& problem, const BoxOperands<T>& operands, int batch, Context& context) {
  Arguments<T> g;
  g.result = problem.result;
  g.m = problem.m, g.n = problem.n;
  g.tiles_m = int(ceil_div(g.m, S::kM)), g.tiles_n = int(ceil_div(g.n, S::kN));
  g.batch_a = operands.a.batch_stride != 0, g.batch_b = operands.b.batch_stride != 0;
  const int64_t tiles = int64_t(batch) * g.tiles_m * g.tiles_n;
  // At least a chunk: the hardware reads zeros beyond k.
  g.stages = int(std::max<int64_t>(ceil_div(problem.k, 128 / int(sizeof(T))), kChunk));
  const int chunks = g.stages / kChunk;
  const int blocks = int(std::min<int64_t>(multiprocessors(), tiles * chunks));
  g.work = plan(tiles, chunks, blocks);
  g.partials = nullptr, g.flags = nullptr;
  if (g.work.whole_tiles < tiles) {
    const int flags = blocks * kConsumers;
    g.partials = static_cast<Accumulator<T>*>(context.allocate(size_t(blocks) * S::kM * S::kN * 4));
    g.flags = static_cast<uint32_t*>(context.allocate(size_t(flags) * 4));
    launch<clear_flags_kernel>("clear_flags", {dim3(1), dim3(256)}, context)(g.flags, flags);
  }
  const TensorMap a = operands.a.map(S::kM), b = operands.b.map(S::kN),
                  out = map_of(g.result, g.m, g.n, batch);
  operands.with_majors([&]<Major a_major, Major b_major>() {
    launch<gemm_wgmma_specialized_kernel<S, T, a_major, b_major>>(
        "wgmma_specialized", {dim3(unsigned(blocks)), dim3(kThreads), sizeof(typename S::Shared)}, context)(
        a, b, out, g);
  });
}

// Whether narrow tiles leave so many more multiprocessors at work that they are done first.
template <class T>
bool suits_narrow(const Gemm<T>& g, int batch) {
  constexpr double kNarrowTime = 0.56;  // of a wide tile
  const auto waves = [&](int64_t m, int64_t n) {
    return double(ceil_div(batch * ceil_div(g.m, m) * ceil_div(g.n, n), multiprocessors()));
  };
  return kNarrowTime * waves(Narrow::kM, Narrow::kN) < waves(Wide::kM, Wide::kN);
}

template <class T>
void gemm_tiles(const Gemm<T>& problem, int batch, Context& context) {
  const BoxOperands<T> operands(problem, batch, context);
  Gemm<T> g = problem;
  if (g.m == 1) g.result.row_stride = ceil_div(g.n, 16) * 16;
  const bool boxes = takes_boxes(g, batch);
  if (!boxes) g.result = sums_in_workspace(problem, batch, context);
  suits_narrow(g, batch) ? launch_tiles<Narrow>(g, operands, batch, context)
                         : launch_tiles<Wide>(g, operands, batch, context);
  if (!boxes) blend(problem, g.result, batch, context);
}

}  // namespace

void gemm_wgmma_specialized(const GemmProblem& problem, Context& context) {
  run_gemm(problem, [&]<class T>(const Gemm<T>& g, int batch) {
    if constexpr (sizeof(T) <= 4 && !std::is_same_v<T, int32_t>) {
      if (g.k == 0 || std::max({g.m, g.n, g.k}) > int64_t{1} << 30) return gemm_small(g, batch, context);
      gemm_tiles(g, batch, context);
    }
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
