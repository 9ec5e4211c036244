// What the steps after wgmma_persistent have in common: the loops of its producer and of its consumers, which
// are those of level6_wgmma_persistent.cu; the store of a tile by the tensor memory accelerator (TMA); and
// the kernel of the steps that differ only in numbers (WgmmaStep).
//
//   a warp's 16 rows of a tile, in boxes of 128 bytes (64 columns of bfloat16)
//     sums -> box in shared memory, rounded -> TMA store -> 16 whole lines of C
#pragma once

#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// The producer: one thread asks for the stages of all tiles of this block, in order.
template <class Stage, int BM, int BN, class T, int STAGES, int STAGE_BYTES>
__device__ __forceinline__ void load_tiles(StageRing<STAGES, STAGE_BYTES>& ring, const OperandMaps& maps,
                                           const WgmmaProblem<T>& p) {
  RingPosition<STAGES> at{0, 1};  // in phase 1 a new barrier does not wait: all stages are empty
  for_each_tile(p, [&](const TilePlace<16>& tile) {
    for (int step = 0; step < p.steps; ++step, at.advance()) {
      wait_phase(&ring.empty[at.stage], at.phase);
      Stage::load(ring.stage[at.stage], &ring.full[at.stage], maps, p, tile.batch, tile.row * BM,
                  tile.column * BN, step);
    }
  });
}

// A consumer warpgroup computes its 64 rows of a tile. At the end all stages that it read are free again, so
// that the producer can fill them for the next tile.
template <class Stage, class Acc, int R, int STAGES, int STAGE_BYTES>
__device__ __forceinline__ void multiply_tile(Acc (&sum)[R], StageRing<STAGES, STAGE_BYTES>& ring,
                                              RingPosition<STAGES>& at, int steps, int warpgroup) {
  const bool leader = threadIdx.x % 32 == 0;
  Barrier* before = nullptr;  // of the stage before this one
  for (int step = 0; step < steps; ++step, at.advance()) {
    wait_phase(&ring.full[at.stage], at.phase);
    Stage::multiply(sum, ring.stage[at.stage], warpgroup, step > 0);
    wgmma_wait<1>();
    if (step > 0 && leader) arrive(before);
    before = &ring.empty[at.stage];
  }
  wgmma_wait<0>(sum);
  if (leader) arrive(before);  // the last stage is free for the next tile before this one is stored
}

// A warp's boxes in shared memory. The pattern of the swizzle repeats every 8 rows of 128 bytes, so boxes
// begin at multiples of 1024 bytes (device/swizzle.cuh).
template <int BOXES>
struct alignas(1024) WarpBoxes {
  unsigned char box[BOXES][16 * 128];  // (16, 128 bytes), swizzled
};

// A warp writes its 16 rows of a tile to its boxes, as elements of Out, and calls store(box, column) for each
// of them: it begins at that column of the tile. The TMA reads a box while the warp goes on, so the warp
// waits before it writes a box again: until at most the BOXES - 1 newest stores, which are of the other
// boxes, are still being read.
template <class Out, class T, int BOXES, int R, class Store>
__device__ __forceinline__ void fill_boxes(WarpBoxes<BOXES>& boxes, Accumulator<T> alpha,
                                           const Accumulator<T> (&sum)[R], Store&& store) {
  // Columns of a box of 16 rows, and the sums that each of 32 lanes writes to it. Boxes are used in turn,
  // from the first on in each tile.
  constexpr int kColumns = 128 / int(sizeof(Out)), kSums = 16 * kColumns / 32;
  static_assert(R / kSums % BOXES == 0);
  FASTGEMM_UNROLL
  for (int box = 0; box < R / kSums; ++box) {
    unsigned char* const to = boxes.box[box % BOXES];
    wait_stores_read<BOXES - 1>();
    __syncwarp();
    const int lane = fresh_lane();  // no address of a box is kept in a register while a tile is multiplied
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; i += 2) {
      const Position at = WgmmaLayout<TensorCoreElement<T>>::c(lane, i);
      const Accumulator<T>* const pair = &sum[box * kSums + i];
      store_vector(to + swizzled<Swizzle::bytes128>(uint32_t(at.row * 128 + at.column * int(sizeof(Out)))),
                   Vector<Out, 2>{{round_to<Out>(alpha * pair[0]), round_to<Out>(alpha * pair[1])}});
    }
    fence_async_shared();
    __syncwarp();
    store(to, box * kColumns);
  }
}

// Makes the map (the TMA descriptor) of the result, and returns whether the TMA can store it. It can if
//   - beta is 0, because a box holds only the product;
//   - rows and matrices begin at multiples of 16 bytes, as the TMA demands, and do not overlap;
//   - a row is a multiple of 16 bytes long, because the TMA writes the last 16 bytes of a row as a whole.
// The warp itself stores other results.
template <class T>
bool map_result(TensorMap& map, const Gemm<T>& g, int batch) {
  const Result<T>& r = g.result;
  const int64_t bytes = r.out_bytes(), plane = batch == 1 ? g.m * r.row_stride : r.batch_stride;
  const auto whole = [&](int64_t elements) { return elements * bytes % 16 == 0; };
  if (r.beta != 0 || !is_aligned(static_cast<char*>(r.out), 16) || !whole(g.n) || !whole(r.row_stride) ||
      !whole(plane) || r.row_stride < g.n || plane <= 0)
    return false;
  map = make_tensor_map({r.out, int(bytes), g.n, g.m, batch, r.row_stride * bytes, plane * bytes,
                         128 / int(bytes), 16, Swizzle::bytes128});
  return true;
}

// A warpgroup stores its 64 rows of a tile, each warp 16 of them, in boxes. If map_result() made a map, the
// TMA stores a box. Otherwise it holds sums, and the warp stores them row by row; a loop, because code for
// each of a thread's sums takes longer to compile than the rest of the kernel. With `unrolled` there is such
// code, as in wgmma_persistent.
template <int BM, int BN, bool unrolled = false, class T, int BOXES, int R>
__device__ __forceinline__ void store_tile(WarpBoxes<BOXES>& boxes, const TensorMap& out, bool in_boxes,
                                           const WgmmaProblem<T>& p, const Accumulator<T> (&sum)[R],
                                           const TilePlace<16>& tile) {
  const int row = tile.row * BM, column = tile.column * BN, warp = warp_index(), row0 = row + 16 * warp;
  if (in_boxes)
    return with_stored_type(p.gemm.result, [&]<class Out>() {
      const bool elected = elect_one();  // always the same lane: a thread can wait only for its own stores
      fill_boxes<Out, T>(boxes, p.gemm.result.alpha, sum, [&](const unsigned char* box, int first) {
        if (!elected) return;
        store_box(&out, box, column + first, row0, tile.batch);
        commit_stores();
      });
    });
  const Gemm<T> g = p.gemm.at_batch(tile.batch);
  if constexpr (unrolled) return store_sums(g, sum, row + 64 * (warp / 4), column);
  using Sum = std::conditional_t<std::is_integral_v<Accumulator<T>>, int32_t, float>;
  fill_boxes<Sum, T>(boxes, 1, sum, [&](const unsigned char* box, int first) {
    const int lane = fresh_lane(), at = column + first + lane;
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < 16; ++i)
      if (row0 + i < g.m && at < g.n)
        g.store(row0 + i, at,
                load_vector<Sum>(box + swizzled<Swizzle::bytes128>(uint32_t(i * 128 + lane * 4))));
  });
}

// The numbers of a step: the block tile, the stages of the ring, the blocks of a multiprocessor, and the
// boxes of a warp. Each 64 rows of the tile have a consumer warpgroup (four warps). One more warp, the last,
// is the producer. A stage has 128 bytes of k for each row of A and each column of B.
template <int BM, int BN, int STAGES, int BLOCKS, int BOXES>
struct WgmmaStep {
  static constexpr int kBM = BM, kBN = BN, kStages = STAGES, kBlocks = BLOCKS;
  static constexpr int kConsumerWarps = 4 * (BM / 64), kThreads = 32 * kConsumerWarps + 32;
  // Whether level=None may choose it. Then A may have any layout, and the machine code of the main loop is
  // that which was measured: a loop that stores would change it.
  static constexpr bool kChosen = false;
  struct Shared : StageRing<STAGES, (BM + BN) * 128> {
    WarpBoxes<BOXES> boxes[kConsumerWarps];
  };
  // A multiprocessor has 228 KB of shared memory. CUDA takes 1 KB for each block, besides its own.
  static_assert(BLOCKS * (sizeof(Shared) + 1024) <= 228 << 10);
};

template <class S, class T, Major a_major, Major b_major>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    gemm_wgmma_tiles_kernel(const __grid_constant__ OperandMaps maps, const __grid_constant__ TensorMap out,
                            const __grid_constant__ WgmmaProblem<T> p, bool in_boxes) {
#if FASTGEMM_SM90A
  using Stage = OperandStage<T, a_major, b_major, S::kBM, S::kBN>;
  using Shared = typename S::Shared;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  shared->init(S::kConsumerWarps);
  const int warp = warp_index();

  if (warp == S::kConsumerWarps) {
    if (elect_one()) load_tiles<Stage, S::kBM, S::kBN>(*shared, maps, p);
    return;
  }

  Accumulator<T> sum[S::kBN / 2];  // a thread's part of the 64 x BN sums of its warpgroup
  RingPosition<S::kStages> at{0, 0};
  for_each_tile(p, [&](const TilePlace<16>& tile) {
    multiply_tile<Stage>(sum, *shared, at, p.steps, warp / 4);
    store_tile<S::kBM, S::kBN, S::kChosen>(shared->boxes[warp], out, in_boxes, p, sum, tile);
  });
  wait_stores_read<0>();  // when the block ends, its shared memory, with the boxes, may go to another block
#endif
}

// Launches a kernel of persistent blocks, `blocks` on a multiprocessor, that takes the map of its result.
template <auto kernel, class T, class... More>
void launch_tiles(const char* name, int blocks, int threads, size_t shared_bytes, const OperandMaps& maps,
                  const WgmmaProblem<T>& p, Context& context, const More&... more) {
  const int64_t tiles = int64_t{p.tiles} * p.batch;
  const dim3 grid(unsigned(std::min<int64_t>(tiles, blocks * multiprocessors())));
  TensorMap out{};
  const bool in_boxes = map_result(out, p.gemm, p.batch);
  launch<kernel>(name, {grid, dim3(unsigned(threads)), shared_bytes}, context)(maps, out, p, in_boxes,
                                                                               more...);
}

template <class S>
void run_wgmma_tiles(const char* name, const GemmProblem& problem, Context& context) {
  run_wgmma_step<S::kBM, S::kBN, float, Half, BFloat16, int8_t>(
      problem, context,
      [&]<class T, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        launch_tiles<gemm_wgmma_tiles_kernel<S, T, a_major, b_major>>(
            name, S::kBlocks, S::kThreads, sizeof(typename S::Shared), maps, p, context);
      },
      std::bool_constant<S::kChosen>());
}

}  // namespace fastgemm::FASTGEMM_TARGET
