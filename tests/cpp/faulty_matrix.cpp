// Matrix instructions: ldmatrix and stmatrix without their synchronization, wgmma without its waits and
// fences.
#include "cuda/device/ldmatrix.cuh"
#include "cuda/device/mma.cuh"
#include "cuda/device/wgmma.cuh"
#include "faulty_kernels.h"

namespace fastgemm::simt::faults {
namespace {

// Operands of bytes in dynamic shared memory: a (64, 32), then b (32, 16), in boxes with rows of 16 bytes.
// They are filled with the ints of `in`, repeated.
constexpr int kTileA = 64 * 32, kTileB = 16 * 32, kInts = (kTileA + kTileB) / 4;

MatrixDescriptor a_of(const int* tiles) { return box_descriptor<Major::k, Swizzle::none>(tiles, 64); }
MatrixDescriptor b_of(const int* tiles) {
  return box_descriptor<Major::k, Swizzle::none>(tiles + kTileA / 4, 16);
}

int8_t tile_byte(int offset) { return int8_t(input(offset / 4 % kIn) >> 8 * (offset % 4)); }

// The product at (row, column), the first accumulator of thread 4 * row + column / 2 of a warp.
int product(int row, int column) {
  int sum = 0;
  for (int k = 0; k < 32; ++k)
    sum += tile_byte(k / 16 * 1024 + row * 16 + k % 16) *
           tile_byte(kTileA + k / 16 * 256 + column * 16 + k % 16);
  return sum;
}
int first_of(int thread) { return product(thread / 32 * 16 + thread % 32 / 4, 2 * (thread % 4)); }

constexpr Shape kWarpgroup{.threads = 128, .shared_bytes = 4 * kInts};

// All synchronization between ordinary stores of the operands and the use of the product, without one of:
enum class Without { nothing, async_fence, barrier, wgmma_fence, wait };

template <Without without>
void wgmma_without(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  const int thread = int(threadIdx.x);
  for (int i = thread; i < kInts; i += 128) tiles[i] = x.in[i % kIn];  // fault: wgmma_without
  if (without != Without::async_fence) fence_async_shared();
  if (without != Without::barrier) __syncthreads();
  uint32_t d[8] = {};
  if (without != Without::wgmma_fence) wgmma_fence(d);
  wgmma<int8_t>(d, a_of(tiles), b_of(tiles));  // fault: wgmma_without
  wgmma_commit();
  if (without != Without::wait) wgmma_wait<0>(d);
  x.out[thread] = int(d[0]);
}

void fill(int* tiles, const Arguments& x) {
  for (int i = int(threadIdx.x); i < kInts; i += int(blockDim.x)) tiles[i] = x.in[i % kIn];
  fence_async_shared();
  __syncthreads();
}

// The fence is before the registers are set.
template <bool faulty>
void fence_too_early(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  fill(tiles, x);
  uint32_t d[8] = {};
  wgmma_fence(d);
  d[0] = 5;
  if (!faulty) wgmma_fence(d);
  wgmma<int8_t>(d, a_of(tiles), b_of(tiles));  // fault: fence_too_early
  wgmma_commit();
  wgmma_wait<0>(d);
  x.out[threadIdx.x] = int(d[0]) - 5;
}

// The next operands are stored while wgmma reads these.
template <bool faulty>
void refill_under_wgmma(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  fill(tiles, x);
  uint32_t d[8] = {};
  wgmma_fence(d);
  wgmma<int8_t>(d, a_of(tiles), b_of(tiles));  // fault: refill_under_wgmma
  wgmma_commit();
  if (!faulty) wgmma_wait<0>(d);
  if (!faulty) __syncthreads();
  tiles[threadIdx.x] = 0;  // fault: refill_under_wgmma
  if (faulty) wgmma_wait<0>(d);
  x.out[threadIdx.x] = int(d[0]);
}

// One thread of the multiplying warpgroup signals the warp that fills the tiles. It may signal for all only
// after its wait.
template <bool faulty>
void early_release(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  FASTGEMM_SHARED Barrier empty;
  const int thread = int(threadIdx.x);
  if (thread == 0) init_barrier(&empty, 1), fence_barrier_init();
  fill(tiles, x);
  if (thread >= 128) {
    wait_phase(&empty, 0);
    tiles[thread] = 0;  // fault: early_release
    return;
  }
  uint32_t d[8] = {};
  wgmma_fence(d);
  wgmma<int8_t>(d, a_of(tiles), b_of(tiles));  // fault: early_release
  wgmma_commit();
  if (faulty && thread == 0) arrive(&empty);
  wgmma_wait<0>(d);
  if (!faulty && thread == 0) arrive(&empty);
  x.out[thread] = int(d[0]);
}

template <bool faulty>
void add_under_wgmma(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  fill(tiles, x);
  uint32_t d[8] = {};
  wgmma_fence(d);
  wgmma<int8_t>(d, a_of(tiles), b_of(tiles));  // fault: add_under_wgmma
  wgmma_commit();
  if (faulty) d[0] += 5;
  wgmma_wait<0>(d);
  if (!faulty) d[0] += 5;
  x.out[threadIdx.x] = int(d[0]) - 5;
}

// Two groups; the second is used after a wait that leaves one group in flight. Products of one accumulator
// need no wait between them.
template <bool faulty>
void wait_for_wrong_product(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  fill(tiles, x);
  uint32_t first[8] = {}, second[8] = {};
  wgmma_fence(first, second);
  wgmma<int8_t>(first, a_of(tiles), b_of(tiles));
  wgmma<int8_t>(first, a_of(tiles), b_of(tiles));
  wgmma_commit();
  wgmma<int8_t>(second, a_of(tiles), b_of(tiles), false);
  wgmma_commit();
  wgmma_wait<1>(first);
  if (!faulty) wgmma_wait<0>(second);
  x.out[threadIdx.x] = int(first[0] - second[0]);
}

template <bool faulty>
void half_an_operand(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  for (int i = int(threadIdx.x); i < (faulty ? kInts / 2 : kInts); i += 128) tiles[i] = x.in[i % kIn];
  fence_async_shared();
  __syncthreads();
  uint32_t d[8] = {};
  wgmma_fence(d);
  wgmma<int8_t>(d, a_of(tiles), b_of(tiles));  // fault: half_an_operand
  wgmma_commit();
  wgmma_wait<0>(d);
  x.out[threadIdx.x] = int(d[0]);
}

template <int beyond, bool swizzled>
void operand_beyond(Arguments x) {
  FASTGEMM_DYNAMIC_SHARED(int, tiles);
  fill(tiles, x);
  uint32_t d[8] = {};
  wgmma_fence(d);
  const auto a = swizzled ? matrix_descriptor(tiles, Swizzle::bytes64, 0, 512).at(beyond) : a_of(tiles);
  wgmma<int8_t>(d, a, b_of(tiles).at(swizzled ? 0 : beyond));  // fault: operand_beyond
  wgmma_commit();
  wgmma_wait<0>(d);
  x.out[threadIdx.x] = int(d[0]);
}

// A warp's ldmatrix reads what other lanes stored.
template <bool faulty>
void load_matrices_without_sync(Arguments x) {
  alignas(16) FASTGEMM_SHARED int rows[32];  // 8 rows of 16 bytes
  const int lane = int(threadIdx.x);
  rows[lane] = x.in[lane];  // fault: load_matrices_without_sync
  if (!faulty) __syncwarp();
  uint32_t r[1];
  load_matrices<1>(r, rows + 4 * (lane % 8));  // fault: load_matrices_without_sync
  x.out[lane] = int(r[0]);
}

template <bool faulty>
void store_matrices_without_sync(Arguments x) {
  alignas(16) FASTGEMM_SHARED int rows[32];
  const int lane = int(threadIdx.x);
  const uint32_t r[1] = {uint32_t(x.in[lane])};
  store_matrices<1>(rows + 4 * (lane % 8), r);  // fault: store_matrices_without_sync
  if (!faulty) __syncwarp();
  x.out[lane] = rows[lane];  // fault: store_matrices_without_sync
}

template <int offset, int ints = 32>
void matrix_rows_at(Arguments x) {
  alignas(16) FASTGEMM_SHARED int rows[ints];
  const int lane = int(threadIdx.x);
  rows[lane] = x.in[lane];
  __syncwarp();
  uint32_t r[1];
  load_matrices<1>(r, rows + 4 * (lane % 8) + offset);  // fault: matrix_rows_at
  x.out[lane] = int(r[0]);
}

// Half of the warp has returned.
template <bool faulty>
void half_a_warp(Arguments x) {
  const int lane = int(threadIdx.x);
  if (faulty && lane >= 16) return;
  const uint32_t a[4] = {lane % 4 == 0 ? 1u : 0u}, b = lane % 4 == 0 ? uint32_t(x.in[lane]) & 0xff : 0;
  uint32_t d[4] = {};
  mma<int8_t>(d, a, b, 0);  // fault: half_a_warp
  x.out[lane] = int(d[0]);
}

int same(int i) { return input(i); }
// d[0] is at column 2 (lane % 4); lane 8 (lane % 4) holds that column of b.
int of_half_a_warp(int i) { return int8_t(input(8 * (i % 4))); }

template <Without without>
constexpr Case wgmma_case(const char* name, const char* check) {
  return {name, wgmma_without<without>, wgmma_without<Without::nothing>, check, first_of, kWarpgroup};
}

constexpr Case kCases[] = {
    wgmma_case<Without::async_fence>("wgmma_without a fence of its operands", "proxy"),
    wgmma_case<Without::barrier>("wgmma_without a barrier", "race"),
    wgmma_case<Without::wgmma_fence>("wgmma_without a fence of its registers", "wgmma fence"),
    wgmma_case<Without::wait>("wgmma_without a wait", kWrongResult),
    {FASTGEMM_CASE(fence_too_early), "wgmma fence", first_of, kWarpgroup},
    {FASTGEMM_CASE(refill_under_wgmma), "in flight", first_of, kWarpgroup},
    {FASTGEMM_CASE(early_release),
     "in flight or race",
     first_of,
     {.threads = 160, .shared_bytes = 4 * kInts, .results = 128}},
    {FASTGEMM_CASE(add_under_wgmma), "in flight", first_of, kWarpgroup},
    {FASTGEMM_CASE(wait_for_wrong_product), kWrongResult, first_of, kWarpgroup},
    {FASTGEMM_CASE(half_an_operand), "uninitialized", first_of, kWarpgroup},
    {"operand_beyond shared memory", operand_beyond<16, false>, operand_beyond<0, false>, "descriptor",
     first_of, kWarpgroup},
    {"operand_beyond the first row of a tile", operand_beyond<64, true>, operand_beyond<0, false>,
     "descriptor", first_of, kWarpgroup},
    {FASTGEMM_CASE(load_matrices_without_sync), "race", same},
    {FASTGEMM_CASE(store_matrices_without_sync), "race", same},
    {"matrix_rows_at 8 bytes", matrix_rows_at<2, 36>, matrix_rows_at<0>, "misaligned", same},
    {"matrix_rows_at the end", matrix_rows_at<4>, matrix_rows_at<0>, "out of bounds", same},
    {FASTGEMM_CASE(half_a_warp), "divergence", of_half_a_warp},
};

}  // namespace

std::span<const Case> matrix_cases() { return kCases; }

}  // namespace fastgemm::simt::faults
