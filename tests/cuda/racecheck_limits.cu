// What `compute-sanitizer --tool racecheck` sees of a ring of stages in shared memory that the TMA fills and
// warps read by ordinary loads, as wgmma_specialized reads an operand that it multiplies from registers.
// Every variant synchronizes in its own way; two are right, two are not. What racecheck said of each on an
// H200 (compute-sanitizer 2025.3.1, driver 580.159, with and without the option
// --racecheck-indirect-barrier-dependency), copies by address (`bulk`) and by a tensor map (`tensor`):
//
//                                                                                          bulk    tensor
//   one_lane_arrives        right  a warp's lanes read, __syncwarp(), one lane arrives     named   silent
//   all_lanes_arrive        right  a warp's lanes read, each of them arrives               silent  silent
//   without_syncwarp        wrong  as the first, but nobody waits for the other lanes      named   silent
//   arrives_before_reading  wrong  each lane arrives, and reads then; thousands of sums    named   silent
//                                  come out wrong
//
// So racecheck follows no order from lanes through __syncwarp() to the lane that arrives for them, although
// CUDA's memory model has it; arrivals of all lanes, 32 times as many, silence it. Of copies by tensor maps
// it saw nothing here, not even the races. wgmma_specialized does as the first variant, by a tensor map.
//
//   nvcc -std=c++20 -O3 -arch=sm_90a -cudart static -lineinfo -o racecheck_limits racecheck_limits.cu
//   compute-sanitizer --tool racecheck ./racecheck_limits one_lane_arrives bulk     # or tensor
//   ./racecheck_limits load 60          # keeps the GPU busy for 60 s
//
// Exit code 1 where a right variant has a wrong result, 2 where nothing could run.
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

enum class Variant { one_lane_arrives, all_lanes_arrive, without_syncwarp, arrives_before_reading };
const char* const kNames[] = {"one_lane_arrives", "all_lanes_arrive", "without_syncwarp",
                              "arrives_before_reading"};

constexpr int kWarps = 8, kConsumers = 32 * kWarps, kThreads = kConsumers + 32;  // and the producer warp
constexpr int kStages = 4, kColumns = 32, kRows = 8 * kWarps;  // a stage: (kRows, kColumns) words
constexpr int kWords = kRows * kColumns, kBytes = 4 * kWords;
constexpr int kSteps = 128;  // stages that a block reads

using Barrier = uint64_t;

struct Shared {
  alignas(128) uint32_t stage[kStages][kWords];
  Barrier full[kStages], empty[kStages];
};

__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void init_barrier(Barrier* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ void arrive(Barrier* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ void arrive_expecting(Barrier* b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes)
               : "memory");
}
__device__ void wait_phase(Barrier* b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred P;\nRETRY:\nmbarrier.try_wait.parity.shared::cta.b64 P, [%0], %1;\n@!P bra RETRY;\n}" ::
          "r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
__device__ void copy_bulk(void* to, const uint32_t* from, Barrier* b) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(kBytes), "r"(shared_address(b))
      : "memory");
}
__device__ void copy_box(void* to, const CUtensorMap* map, int row, Barrier* b) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, "
      "%4}], "
      "[%2];" ::"r"(shared_address(to)),
      "l"(map), "r"(shared_address(b)), "r"(0), "r"(row)
      : "memory");
}

// One thread: a lane that only followed could miss two phases, and would wait forever.
template <bool by_map>
__device__ void produce(Shared& shared, const CUtensorMap* map, const uint32_t* from) {
  for (int step = 0; step < kSteps; ++step) {
    const int stage = step % kStages;
    wait_phase(&shared.empty[stage], uint32_t(step / kStages + 1) % 2);  // a fresh stage counts as emptied
    arrive_expecting(&shared.full[stage], kBytes);
    if constexpr (by_map)
      copy_box(shared.stage[stage], map, step * kRows, &shared.full[stage]);
    else
      copy_bulk(shared.stage[stage], from + int64_t(step) * kWords, &shared.full[stage]);
  }
}

// Each warp reads 8 rows of a stage, each lane of it a column.
template <Variant variant>
__device__ uint32_t consume(Shared& shared) {
  const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
  uint32_t sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const int stage = step % kStages;
    wait_phase(&shared.full[stage], uint32_t(step / kStages) % 2);
    // No lane may miss a phase here, either: the one that arrives waits until all have seen it.
    if (variant == Variant::without_syncwarp) __syncwarp();
    if (variant == Variant::arrives_before_reading) arrive(&shared.empty[stage]);
    const volatile uint32_t* const from = shared.stage[stage] + warp * (8 * kColumns) + lane;
    for (int row = 0; row < 8; ++row) sum = 3 * sum + from[row * kColumns];
    if (variant == Variant::one_lane_arrives) __syncwarp();
    if (variant == Variant::arrives_before_reading) continue;
    if (variant == Variant::all_lanes_arrive || lane == 0) arrive(&shared.empty[stage]);
  }
  return sum;
}

template <Variant variant, bool by_map>
__global__ void __launch_bounds__(kThreads)
    ring(const __grid_constant__ CUtensorMap map, const uint32_t* from, uint32_t* sums) {
  __shared__ Shared shared;
  constexpr bool all = variant == Variant::all_lanes_arrive || variant == Variant::arrives_before_reading;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      init_barrier(&shared.full[i], 1);
      init_barrier(&shared.empty[i], all ? kConsumers : kWarps);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == kConsumers) produce<by_map>(shared, &map, from);
  if (threadIdx.x >= kConsumers) return;
  sums[blockIdx.x * kConsumers + threadIdx.x] = consume<variant>(shared);
}

void require(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(2);
}

CUtensorMap make_map(const uint32_t* data) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  require(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault,
                                           &found));
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  CUtensorMap map{};
  const cuuint64_t sizes[] = {kColumns, uint64_t(kSteps) * kRows}, strides[] = {4 * kColumns};
  const cuuint32_t box[] = {kColumns, kRows}, steps[] = {1, 1};
  const CUresult error =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, const_cast<uint32_t*>(data), sizes, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (error != CUDA_SUCCESS) {
    std::fprintf(stderr, "cuTensorMapEncodeTiled: %d\n", int(error));
    std::exit(2);
  }
  return map;
}

struct Problem {
  std::vector<uint32_t> words = std::vector<uint32_t>(size_t(kSteps) * kWords);
  std::vector<uint32_t> expected = std::vector<uint32_t>(kConsumers);
  uint32_t *from = nullptr, *sums = nullptr;
  CUtensorMap map;
  int blocks = 0;

  Problem() {
    for (size_t i = 0; i < words.size(); ++i) words[i] = uint32_t(i) * 2654435761u;
    for (int thread = 0; thread < kConsumers; ++thread)
      for (int step = 0; step < kSteps; ++step)
        for (int row = 0; row < 8; ++row) {
          const int place = step * kWords + (thread / 32 * 8 + row) * kColumns + thread % 32;
          expected[size_t(thread)] = 3 * expected[size_t(thread)] + words[size_t(place)];
        }
    require(cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0));
    require(cudaMalloc(&from, 4 * words.size()));
    require(cudaMalloc(&sums, size_t(4) * kConsumers * size_t(blocks)));
    require(cudaMemcpy(from, words.data(), 4 * words.size(), cudaMemcpyHostToDevice));
    map = make_map(from);
  }

  template <Variant variant>
  void launch(bool by_map) {
    by_map ? ring<variant, true><<<blocks, kThreads>>>(map, from, sums)
           : ring<variant, false><<<blocks, kThreads>>>(map, from, sums);
    require(cudaGetLastError());
  }

  // How many sums of a launch are wrong.
  int wrong() {
    std::vector<uint32_t> found(size_t(kConsumers) * size_t(blocks));
    require(cudaMemcpy(found.data(), sums, 4 * found.size(), cudaMemcpyDeviceToHost));
    int count = 0;
    for (size_t i = 0; i < found.size(); ++i) count += found[i] != expected[i % kConsumers];
    return count;
  }
};

void keep_busy(Problem& problem, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    for (int i = 0; i < 100; ++i) problem.launch<Variant::all_lanes_arrive>(true);
    require(cudaDeviceSynchronize());
  }
}

}  // namespace

int main(int count, char** arguments) {
  const char* const name = count > 1 ? arguments[1] : "";
  Problem problem;
  if (std::strcmp(name, "load") == 0) {
    keep_busy(problem, count > 2 ? std::atof(arguments[2]) : 10);
    return 0;
  }
  int variant = 0;
  while (variant < 4 && std::strcmp(name, kNames[variant]) != 0) ++variant;
  const bool by_map = count > 2 && std::strcmp(arguments[2], "tensor") == 0;
  using enum Variant;
  switch (variant) {
    case 0:
      problem.launch<one_lane_arrives>(by_map);
      break;
    case 1:
      problem.launch<all_lanes_arrive>(by_map);
      break;
    case 2:
      problem.launch<without_syncwarp>(by_map);
      break;
    case 3:
      problem.launch<arrives_before_reading>(by_map);
      break;
    default:
      std::fprintf(stderr, "no variant %s\n", name);
      return 2;
  }
  require(cudaDeviceSynchronize());
  const int wrong = problem.wrong();
  std::printf("%s by %s: %d wrong sums\n", name, by_map ? "tensor map" : "bulk copies", wrong);
  return wrong > 0 && variant < 2;
}
