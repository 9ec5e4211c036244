// Tests the guarantees of csrc/simt to kernels, and its reports of mistakes in kernels.
#include <cstdio>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device/async_copy.cuh"
#include "cuda/device/cluster.cuh"
#include "cuda/device/sync.cuh"
#include "cuda/device/tma.cuh"
#include "simt/memory.h"

namespace fastgemm::simt {
namespace {

int failures = 0;

void expect(bool holds, const char* what) {
  if (holds) return;
  ++failures;
  std::printf("not so: %s\n", what);
}

// Checks that running the kernel throws, with a message that contains all of these words.
void expect_error(unsigned threads, const std::vector<std::string>& words,
                  const std::function<void()>& kernel, int cluster = 1) {
  try {
    run_grid("bad", dim3(2), dim3(threads), 1024, kernel, "", cluster);
  } catch (const std::runtime_error& e) {
    const std::string message = e.what();
    for (const std::string& word : words)
      if (message.find(word) == std::string::npos)
        expect(false, (message + " (no \"" + word + "\")").c_str());
    return;
  }
  expect(false, ("an error with " + words.front()).c_str());
}

void indices() {
  std::vector<int> order;
  run_grid("indices", dim3(3, 2, 2), dim3(4, 2, 3), 0, [&] {
    const dim3 b = blockIdx, t = threadIdx;
    expect(gridDim.y == 2 && blockDim.z == 3, "dimensions");
    expect(runtime::thread_index() == int(t.x + 4 * (t.y + 2 * t.z)), "x runs fastest");
    if (runtime::thread_index() == 0) order.push_back(int(b.x + 3 * (b.y + 2 * b.z)));
  });
  for (int i = 0; i < 12; ++i) expect(order.size() == 12 && order[size_t(i)] == i, "blocks run in order");
}

void shuffles() {
  run_grid("shuffles", dim3(1), dim3(64), 0, [&] {
    const int lane = int(threadIdx.x) % 32;
    int sum = lane;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    expect(sum == 496, "a butterfly adds up a warp");
    expect(__shfl_sync(0xffffffffu, 1.5 * lane, 3) == 4.5, "a broadcast of doubles");
    expect(__shfl_sync(0xffffffffu, lane, 1, 8) == lane / 8 * 8 + 1, "a broadcast in groups of 8");
    expect(__shfl_down_sync(0xffffffffu, lane, 5) == (lane < 27 ? lane + 5 : lane), "a shift");
    expect(__ballot_sync(0xffffffffu, lane % 4 == 0) == 0x11111111u, "a ballot");
    expect(__any_sync(0xffffffffu, lane == 31) && !__all_sync(0xffffffffu, lane == 31), "any and all");
    if (lane < 16) expect(__shfl_sync(0xffffu, lane, 15) == 15, "half a warp");
  });
}

// Thread i reads what thread i + shift wrote.
int wrong_reads(int shift, bool barrier) {
  int wrong = 0;
  run_grid("neighbours", dim3(2), dim3(96), 96 * sizeof(int), [&] {
    FASTGEMM_DYNAMIC_SHARED(int, shared);
    const int i = int(threadIdx.x), other = (i + shift) % 96;
    shared[i] = i;
    if (barrier) __syncthreads();
    wrong += shared[other] != other;
  });
  return wrong;
}

void barriers() {
  expect(wrong_reads(1, true) == 0 && wrong_reads(95, true) == 0, "a barrier separates writes from reads");
  expect(wrong_reads(1, false) > 0 && wrong_reads(95, false) > 0, "a missing barrier shows");
  run_grid("halves", dim3(1), dim3(128), 128, [&] {
    FASTGEMM_DYNAMIC_SHARED(unsigned char, shared);
    const int half = int(threadIdx.x) / 64;
    for (int round = 0; round < 3; ++round) {
      shared[threadIdx.x] = static_cast<unsigned char>(round);
      if (half == 0) named_barrier(1, 64);
      if (half == 0) expect(shared[63 - threadIdx.x] == round, "a barrier of half a block");
      if (half == 0) named_barrier(2, 64);
    }
    __syncthreads();
  });
}

void shared_memory() {
  run_grid("shared", dim3(2), dim3(1), 64, [&] {
    FASTGEMM_DYNAMIC_SHARED(float, shared);
    expect(shared_address(shared) % 1024 == 0, "dynamic shared memory is 1024-byte aligned");
    for (int i = 0; i < 16; ++i) expect(std::isnan(shared[i]), "a block finds its shared memory full of NaN");
    shared[3] = 1;
  });
}

void clusters() {
  std::vector<int> seen(6, 0);
  const auto kernel = [&] {
    FASTGEMM_DYNAMIC_SHARED(int, shared);
    const int rank = cluster_rank(), next = (rank + 1) % 3;
    expect(rank == int(blockIdx.x) % 3 && blockDim.x == 128, "a block's place in its cluster");
    shared[threadIdx.x] = int(1000 * blockIdx.x + threadIdx.x);
    cluster_sync();
    const int block = int(blockIdx.x) - rank + next;
    expect(*map_shared_rank(shared + threadIdx.x, next) == int(1000 * block + int(threadIdx.x)),
           "another block's memory");
    *map_shared_rank(shared + 128 + threadIdx.x, next) = rank;
    cluster_arrive();
    if (threadIdx.x == 0) ++seen[blockIdx.x];
    cluster_wait();
    expect(shared[128 + threadIdx.x] == (rank + 2) % 3, "what another block has written");
    __syncthreads();  // of this block only
    if (rank == 0 && threadIdx.x < 64) return;
    cluster_sync();  // of the remaining threads
  };
  run_grid("clusters", dim3(6), dim3(128), 1024, kernel, "", 3);
  expect(seen == std::vector<int>(6, 1), "every block of every cluster runs once");
  expect_error(64, {"clusters of", "whole warpgroups"}, [] {}, 2);
  expect_error(128, {"grid", "clusters of 3"}, [] {}, 3);
  expect_error(
      128, {"dynamic shared memory has no counterpart"},
      [] {
        int local = 0;
        map_shared_rank(&local, 1);
      },
      2);
  expect_error(
      128, {"no block 2 in a cluster of 2"},
      [] {
        FASTGEMM_DYNAMIC_SHARED(int, shared);
        map_shared_rank(shared, 2);
      },
      2);
}

void async_copies() {
  alignas(16) const float from[] = {1, 2, 3, 4};
  run_grid("async", dim3(1), dim3(32), 32 * 32, [&] {
    FASTGEMM_DYNAMIC_SHARED(float, shared);
    float* mine = shared + 8 * threadIdx.x;
    copy_async<16>(mine, from);
    commit_async_copies();
    copy_async<16>(mine + 4, from, 4);
    commit_async_copies();
    expect(std::isnan(mine[0]), "a copy that was not waited for has not come");
    wait_async_copies<1>();
    expect(mine[3] == 4 && std::isnan(mine[4]), "the older group has come, the newer one has not");
    wait_async_copies<0>();
    expect(mine[4] == 1 && mine[5] == 0 && mine[7] == 0, "zeros beyond the valid bytes");
  });
}

void tensor_maps() {
  alignas(16) float data[160];  // 2 planes of 5 x 6 elements, rows 16 elements apart
  for (int i = 0; i < 160; ++i) data[i] = float(i + 1);
  TensorShape shape{data, 4, 6, 5, 2, 64, 320, 8, 4};
  TensorMap map;
  memory::add_global(data, sizeof(data), "data", false, true);
  const auto boxes = [&] {
    FASTGEMM_DYNAMIC_SHARED(unsigned char, shared);
    auto* box = reinterpret_cast<float*>(shared);  // (4, 8)
    auto* full = reinterpret_cast<Barrier*>(shared + 1024);
    Barrier* empty = full + 1;
    if (threadIdx.x == 0) init_barrier(full, 1), init_barrier(empty, 32), fence_barrier_init();
    __syncthreads();
    // Column, row, plane.
    constexpr int kOrigins[][3] = {{0, 0, 0}, {-4, -1, 1}, {4, 3, 1}, {0, 0, 2}, {0, 1, -1}};
    for (uint32_t step = 0; step < 5; ++step) {
      const auto [column, row, plane] = kOrigins[step];
      if (threadIdx.x < 32) {  // consumers
        wait_phase(full, step & 1);
        const int i = int(threadIdx.x) / 8 + row, j = int(threadIdx.x) % 8 + column;
        for (int p = 0; p < shape.box_planes; ++p) {
          const int at = plane + p;
          const bool inside = i >= 0 && i < 5 && j >= 0 && j < 6 && at >= 0 && at < 2;
          expect(box[32 * p + int(threadIdx.x)] == (inside ? float(80 * at + 16 * i + j + 1) : 0),
                 "a box, zeros outside");
        }
        arrive(empty);
      } else if (threadIdx.x == 32) {  // producer
        wait_phase(empty, (step & 1) ^ 1);
        arrive_expecting(full, 128 * shape.box_planes);
        load_box(box, &map, full, column, row, plane);
        expect(std::isnan(box[0]), "a box that was not waited for has not come");
      }
    }
  };
  for (const int planes : {1, 2}) {
    shape.box_planes = planes, map = make_tensor_map(shape);
    run_grid("boxes", dim3(2), dim3(64), 2048, boxes);
  }
  memory::remove_all_global();
  const auto refused = [&](auto change) {
    TensorShape bad = shape;
    change(bad);
    try {
      make_tensor_map(bad);
    } catch (const std::runtime_error&) {
      return;
    }
    expect(false, "a tensor map that the driver refuses is refused");
  };
  refused([](TensorShape& s) { s.data = static_cast<const char*>(s.data) + 4; });
  refused([](TensorShape& s) { s.row_stride_bytes = 40; });
  refused([](TensorShape& s) { s.box_columns = 6; });
  refused([](TensorShape& s) { s.box_rows = 257; });
  refused([](TensorShape& s) { s.box_planes = 0; });
  refused([](TensorShape& s) { s.planes = 0; });
  refused([](TensorShape& s) { s.swizzle = Swizzle::bytes64; });
}

void errors() {
  expect_error(64, {"'bad'", "block (0, 0, 0)", "deadlock", "thread (1, 0, 0)", "barrier 3"}, [] {
    if (threadIdx.x > 0) named_barrier(3, 64);
  });
  expect_error(32, {"deadlock", "phase"}, [] {
    FASTGEMM_DYNAMIC_SHARED(Barrier, barrier);
    if (threadIdx.x == 0) init_barrier(barrier, 2);
    __syncthreads();
    if (threadIdx.x == 0) arrive(barrier);
    wait_phase(barrier, 0);
  });
  expect_error(32, {"deadlock", "value in memory"}, [] {
    static uint32_t flag = 0;
    while (load_acquire(&flag) == 0) spin_wait();
  });
  expect_error(32, {"before it was initialized"}, [] {
    FASTGEMM_DYNAMIC_SHARED(Barrier, barrier);
    wait_phase(barrier, 0);
  });
  expect_error(32, {"shuffle reads lane 9"}, [] {
    if (threadIdx.x < 8) __shfl_sync(0xffu, 1, 9);
  });
  expect_error(32, {"different warp-wide operations"}, [] {
    if (threadIdx.x < 16)
      __syncwarp();
    else
      __ballot_sync(0xffffffffu, 1);
  });
  expect_error(32, {"not aligned"}, [] {
    FASTGEMM_DYNAMIC_SHARED(unsigned char, shared);
    copy_async<16>(shared + 8, shared);
  });
  expect_error(2048, {"launching kernel 'bad' failed", "block (2048, 1, 1)"}, [] {});
}

void two_grids_at_once() {
  std::thread other(barriers);
  barriers();
  other.join();
}

}  // namespace
}  // namespace fastgemm::simt

int main() {
  using namespace fastgemm::simt;
  indices(), shuffles(), barriers(), shared_memory(), clusters(), async_copies(), tensor_maps(), errors();
  two_grids_at_once();
  std::printf("%d failures\n", failures);
  return failures ? 1 : 0;
}
