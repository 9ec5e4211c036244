//   make sim KERNEL=wgmma_overlapped ARGS='--dtype bf16'
//
// Level 6 on Hopper, fourth step: stores that overlap. What changes from wgmma_persistent: a warp writes its
// finished sums, rounded, to boxes of 16 rows x 128 bytes in shared memory, and the tensor memory accelerator
// stores those to C while the warp goes on and writes the other of its two boxes.
//
//   sums -> box 0 -> TMA store ------------>                    columns 0 to 63 of C (bfloat16)
//           sums -> box 1 -> TMA store ------------>            columns 64 to 127
//                   wait until box 0 is read, sums -> box 0 -> TMA store ...
//
// The last boxes of a tile are on their way while the next tile is multiplied, and C is written in lines of
// 128 bytes, where a plain store fills 8 of the 32 bytes of a sector. So no second block is needed to
// multiply meanwhile: one block a multiprocessor has a ring of four stages and, since the producer's
// warpgroup gives up its registers (setmaxnreg), 64 x 256 sums a warpgroup, which read A half as often for
// each product.
//
// What is left for wgmma_specialized: it stores boxes between the products of the next tile, and of results
// that TMA cannot store (map_result() below), and cuts the tiles of the last wave.
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/ring.cuh"
#include "cuda/gemm/parts/wgmma_steps.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kBM = 128, kBN = 256;  // block tile
constexpr int kConsumerWarps = 4 * (kBM / 64), kThreads = 32 * kConsumerWarps + 128;
constexpr int kStages = 4;

struct alignas(1024) Boxes {
  unsigned char box[2][16 * 128];  // (16, 128 bytes), swizzled
};
struct Shared : StageRing<kStages, (kBM + kBN) * 128> {
  Boxes boxes[kConsumerWarps];
};
static_assert(sizeof(Shared) <= 227 << 10);

// Stores a warp's 16 rows of a tile as elements of Out.
template <class Out, class T>
__device__ __forceinline__ void store_boxes(Boxes& boxes, const TensorMap& out, Accumulator<T> alpha,
                                            const Accumulator<T> (&sum)[kBN / 2], int row,
                                            const TilePlace<16>& tile) {
  constexpr int kColumns = 128 / int(sizeof(Out)), kSums = 16 * kColumns / 32;  // of a box, of a lane
  const bool elected = elect_one();
  FASTGEMM_UNROLL
  for (int box = 0; box < kBN / kColumns; ++box) {
    unsigned char* const to = boxes.box[box % 2];
    wait_stores_read<1>();  // only the store before may still read its box, which is the other one
    __syncwarp();
    FASTGEMM_UNROLL
    for (int i = 0; i < kSums; i += 2) {
      const Position at = WgmmaLayout<TensorCoreElement<T>>::c(int(threadIdx.x) % 32, i);
      const Accumulator<T>* const pair = &sum[box * kSums + i];
      store_vector(to + swizzled<Swizzle::bytes128>(uint32_t(at.row * 128 + at.column * int(sizeof(Out)))),
                   Vector<Out, 2>{{round_to<Out>(alpha * pair[0]), round_to<Out>(alpha * pair[1])}});
    }
    fence_async_shared();
    __syncwarp();
    if (!elected) continue;
    store_box(&out, to, tile.column * kBN + box * kColumns, row, tile.batch);
    commit_stores();
  }
}

template <class G, Major a_major, Major b_major>
__global__ void __launch_bounds__(kThreads, 1)
    gemm_wgmma_overlapped_kernel(const __grid_constant__ OperandMaps maps,
                                 const __grid_constant__ TensorMap out,
                                 const __grid_constant__ WgmmaProblem<G> p, bool in_boxes) {
#if FASTGEMM_SM90A
  using T = typename G::Element;
  using Stage = OperandStage<T, a_major, b_major, kBM, kBN>;
  FASTGEMM_DYNAMIC_SHARED(Shared, shared);
  shared->init(kConsumerWarps);
  const int warp = warp_index();

  if (warp >= kConsumerWarps) {
    release_registers<40>();
    if (warp != kConsumerWarps || !elect_one()) return;
    RingPosition<kStages> at{0, 1};
    for_each_tile(p, [&](const TilePlace<16>& tile) {
      for (int step = 0; step < p.steps; ++step, at.advance()) {
        wait_phase(&shared->empty[at.stage], at.phase);
        Stage::load(shared->stage[at.stage], &shared->full[at.stage], maps, p, tile.batch, tile.row * kBM,
                    tile.column * kBN, step);
      }
    });
    return;
  }

  claim_registers<232>();
  const int warpgroup = warp / 4, lane = int(threadIdx.x) % 32;
  Accumulator<T> sum[kBN / 2];  // (64, BN) of the warpgroup
  RingPosition<kStages> at{0, 0};
  for_each_tile(p, [&](const TilePlace<16>& tile) {
    Barrier* before = nullptr;
    for (int step = 0; step < p.steps; ++step, at.advance()) {
      wait_phase(&shared->full[at.stage], at.phase);
      Stage::multiply(sum, shared->stage[at.stage], warpgroup, step > 0);
      wgmma_wait<1>();
      if (step > 0 && lane == 0) arrive(before);
      before = &shared->empty[at.stage];
    }
    wgmma_wait<0>(sum);
    if (lane == 0) arrive(before);  // the last stage is free for the next tile before this one is stored
    finish_columns(p.gemm, sum, int64_t(tile.column) * kBN);
    if (!in_boxes)
      return store_sums(p.gemm.at_batch(tile.batch), sum, int64_t(tile.row) * kBM + 64 * warpgroup,
                        int64_t(tile.column) * kBN);
    with_stored_type(p.gemm.result, [&]<class Out>() {
      store_boxes<Out, T>(shared->boxes[warp], out, p.gemm.result.alpha, sum, tile.row * kBM + 16 * warp,
                          tile);
    });
  });
  wait_stores_read<0>();  // the boxes live as long as the block
#endif
}

// Makes the map by which TMA stores the result, where it can: beta = 0, rows of whole units of 16 bytes that
// begin at multiples of 16 bytes.
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

}  // namespace

void gemm_wgmma_overlapped(const GemmProblem& problem, Context& context) {
  run_wgmma_step<kBM, kBN>(
      problem, context, [&]<class G, Major a_major, Major b_major>(const auto& maps, const auto& p) {
        const int64_t tiles = int64_t{p.tiles} * p.batch;
        const dim3 blocks(unsigned(std::min<int64_t>(tiles, multiprocessors())));
        TensorMap out{};
        const bool in_boxes = map_result(out, p.gemm, p.batch);
        launch<gemm_wgmma_overlapped_kernel<G, a_major, b_major>>(
            "wgmma_overlapped", {blocks, dim3(kThreads), sizeof(Shared)}, context)(maps, out, p, in_boxes);
      });
}

}  // namespace fastgemm::FASTGEMM_TARGET
