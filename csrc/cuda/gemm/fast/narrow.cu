// Level 6 for products with a narrow side: up to 4 rows or columns, in a few cases up to 32; for int32 up to
// 16, and all small products. One operand, X (wide, k), is read once, and each of its elements is used for
// few products. The other, Y (narrow, k), stays in the caches. What changes from the tiles of the other
// rungs: no operand goes through shared memory, and no barrier comes before the sums. The host distributes a
// block's threads over rows of X and over k to fit the shape (predict/narrow_plan.h). All loads of a thread's
// step are independent, and of 16 bytes where the operand allows it; a short k is one step. Most such
// products take the time of a launch and two cache misses, so only a few instructions come before the first
// load. The threads that share rows add their sums once, in shared memory, in a fixed order.
#include "cuda/device/sync.cuh"
#include "cuda/gemm/fast/narrow_plan.cuh"
#include "cuda/gemm/parts/epilogues/fused_epilogue.cuh"
#include "cuda/gemm/parts/overlaps.cuh"
#include "cuda/gemm/parts/schedules/split_k.cuh"
#include "cuda/gemm/rules.h"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class Thread, class T>
struct NarrowArguments : Sides<T> {
  int64_t x_apart, y_apart;  // distance of a thread's loads along k, in elements
  int64_t columns_written;
  int y_rows, batch, apart;  // apart: the same distance in values of k
  int log_rows, log_k;       // threads of a block along rows and along k
  int part, last_part;       // values of k of a block, and of the last block that shares k
  bool k_first;              // neighbouring threads have neighbours along k, not neighbouring rows
  Result<T> result;
  [[no_unique_address]] EpilogueOf<Thread> epilogue;  // used where no other block shares k
};

struct Place {
  int row, k;  // the thread's index along rows and along k in its block
};

// Adds the sums of all threads that share a row, and stores them. One warp adds each of a thread's values.
template <class Thread, class T>
__device__ __forceinline__ void add_and_store(const NarrowArguments<Thread, T>& g, const Result<T>& result,
                                              Place place, int64_t first_row, int first_narrow,
                                              const Accumulator<T> (&sum)[Thread::kRows][Thread::kNarrow]) {
  using Acc = Accumulator<T>;
  constexpr int kValues = Thread::kRows * Thread::kNarrow, kWarps = kNarrowThreads / 32;
  constexpr int kMost = sizeof(Acc) == 8 ? 8 : 16, kSlab = kValues < kMost ? kValues : kMost;
  // Each of a thread's values has a part of the slab: a matrix with one element for each thread, at (thread
  // along k, thread along rows). It can be written along either index without bank conflicts.
  FASTGEMM_SHARED Acc slab[kSlab][kNarrowThreads * 3 / 2];
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int threads = 1 << g.log_rows, pitch = g.k_first ? threads | 1 : threads;
  const int at_once = max(32 >> g.log_rows, 1);  // rows of the matrix that a warp reads at once
  FASTGEMM_UNROLL
  for (int first = 0; first < kValues; first += kSlab) {
    if (first > 0) __syncthreads();
    FASTGEMM_UNROLL
    for (int e = 0; e < kSlab; ++e)
      slab[e][place.k * pitch + place.row] =
          sum[(first + e) / Thread::kNarrow][(first + e) % Thread::kNarrow];
    __syncthreads();
    FASTGEMM_NO_UNROLL
    for (int e = warp; e < kSlab; e += kWarps) {
      const int r = (first + e) / Thread::kNarrow, narrow = first_narrow + (first + e) % Thread::kNarrow;
      FASTGEMM_NO_UNROLL
      for (int i = lane & (threads - 1); i < threads; i += 32) {
        Acc total = 0;
        FASTGEMM_UNROLL
        for (int q = 0; q < kWarps; ++q) {
          const int k = (lane >> g.log_rows) + q * at_once;
          if (k >> g.log_k == 0) total += slab[e][k * pitch + i];
        }
        for (int other = 16; other >= threads; other /= 2) total += __shfl_xor_sync(~0u, total, other);
        const int64_t wide =
            first_row + (Thread::kVectorRows ? i * Thread::kRows + r : i + (r << g.log_rows));
        if (lane >= threads || wide >= g.wide.side || narrow >= g.y_rows) continue;
        const int64_t row = g.swapped ? narrow : wide, column = g.swapped ? wide : narrow;
        if constexpr (kFuses<Thread>) {
          store_finished(g.epilogue, result, row, column, total);
          continue;
        }
        result.store(row, column, total);
        // Rows of the workspace are whole vectors: the last element's lane fills the padding.
        if (column != (g.swapped ? g.wide.side : g.y_rows) - 1) continue;
        FASTGEMM_NO_UNROLL
        for (int64_t pad = column + 1; pad < g.columns_written; ++pad) result.store(row, pad, Acc(0));
      }
    }
  }
}

// Multiplies a thread's rows of X by the rows of Y up to `last`, for the next step of k. Values of k from
// `left` on count as zeros. All loads are issued before the first one is used. Between products, the compiler
// would put each load behind a branch, and cache misses would come one after another. Where X comes in
// vectors of rows, only the loads of X are issued first, because the registers do not hold more. A step's
// float32 sums are completed before they are added to earlier sums, so that errors grow with the number of
// steps and not with k.
template <class Thread, class T>
__device__ __forceinline__ void multiply_step(const NarrowArguments<Thread, T>& g,
                                              const T* const (&row)[Thread::kRowLoads], const T* y, int last,
                                              int left,
                                              Accumulator<T> (&sum)[Thread::kRows][Thread::kNarrow]) {
  using Acc = Accumulator<T>;
  using XVector = Vector<T, Thread::kPerLoad>;
  using YVector = Vector<T, Thread::kPerLoadK>;
  constexpr bool kApart = std::is_same_v<Acc, float>;
  XVector a[Thread::kUnroll][Thread::kRowLoads] = {};
  FASTGEMM_UNROLL
  for (int u = 0; u < Thread::kUnroll; ++u) {
    FASTGEMM_UNROLL
    for (int r = 0; r < Thread::kRowLoads; ++r)
      if (u * g.apart < left) a[u][r] = load_vector<XVector>(row[r] + u * g.x_apart);
  }
  YVector b[Thread::kUnroll][Thread::kNarrow] = {};
  const auto load_y = [&](int u) {
    FASTGEMM_UNROLL
    for (int j = 0; j < Thread::kNarrow; ++j)
      if (u * g.apart < left)
        b[u][j] = load_vector<YVector>(y + min(j, last) * g.narrow.side_stride + u * g.y_apart);
  };
  constexpr bool kAllFirst = !Thread::kVectorRows;
  FASTGEMM_UNROLL
  for (int u = 0; kAllFirst && u < Thread::kUnroll; ++u) load_y(u);
  Acc part[Thread::kRows][Thread::kNarrow] = {};
  FASTGEMM_UNROLL
  for (int u = 0; u < Thread::kUnroll; ++u) {
    if (!kAllFirst) load_y(u);
    FASTGEMM_UNROLL
    for (int r = 0; r < Thread::kRows; ++r) {
      FASTGEMM_UNROLL
      for (int j = 0; j < Thread::kNarrow; ++j) {
        Acc& to = kApart ? part[r][j] : sum[r][j];
        FASTGEMM_UNROLL
        for (int v = 0; v < Thread::kPerLoadK; ++v) {
          const T x = Thread::kVectorRows ? a[u][0][r] : a[u][r % Thread::kRowLoads][v];
          to = multiply_add(Acc(widen(x)), Acc(widen(b[u][j][v])), to);
        }
        if (kApart && u == Thread::kUnroll - 1) sum[r][j] += to;
      }
    }
  }
}

// The sums of int64 spill within 128 registers.
template <class Thread, class T>
constexpr int kLeastBlocks = std::is_same_v<T, int64_t> ? 1
                             : sizeof(T) == 8           ? 2
                                                        : Thread::kResident;

template <class Thread, class T>
__global__ void __launch_bounds__(kNarrowThreads, kLeastBlocks<Thread, T>)
    gemm_narrow_kernel(const __grid_constant__ NarrowArguments<Thread, T> g) {
  launch_dependents();
  grid_dependency_wait();
  const int log_first = g.k_first ? g.log_k : g.log_rows;
  const int low = int(threadIdx.x) & ((1 << log_first) - 1), high = int(threadIdx.x) >> log_first;
  const Place place = g.k_first ? Place{high, low} : Place{low, high};
  const int at_k = place.k * Thread::kPerLoadK;
  const int64_t first_row = (int64_t(blockIdx.x) * Thread::kRows) << g.log_rows;
  const int first_narrow = int(blockIdx.y) * Thread::kNarrow, last = g.y_rows - 1 - first_narrow;
  const T* x = g.wide.data + at_k * g.wide.k_stride;
  const T* y = g.narrow.data + first_narrow * g.narrow.side_stride + at_k * g.narrow.k_stride;
  Result<T> result = g.result;
  if (gridDim.z > 1) {  // several blocks share k, or there is a batch
    const int split = int(blockIdx.z) / g.batch, matrix = int(blockIdx.z) % g.batch;
    const int64_t k0 = int64_t(split) * g.part;
    x += matrix * g.wide.batch_stride + k0 * g.wide.k_stride;
    y += matrix * g.narrow.batch_stride + k0 * g.narrow.k_stride;
    result.out = static_cast<char*>(result.out) + blockIdx.z * result.batch_stride * result.out_bytes();
    result.c = static_cast<const char*>(result.c) + matrix * result.c_batch_stride * result.out_bytes();
  }
  int left = (int(blockIdx.z) < int(gridDim.z) - g.batch ? g.part : g.last_part) - at_k;
  // Rows beyond the last one read the last one, and are not stored.
  const T* row[Thread::kRowLoads];
  FASTGEMM_UNROLL
  for (int r = 0; r < Thread::kRowLoads; ++r) {
    if constexpr (Thread::kVectorRows)
      row[r] = x + min(first_row + place.row * Thread::kRows, g.wide.side - Thread::kRows);
    else
      row[r] = x + min(first_row + place.row + (r << g.log_rows), g.wide.side - 1) * g.wide.side_stride;
  }
  Accumulator<T> sum[Thread::kRows][Thread::kNarrow] = {};
  FASTGEMM_NO_UNROLL
  do {
    multiply_step<Thread>(g, row, y, last, left, sum);
    FASTGEMM_UNROLL
    for (int r = 0; r < Thread::kRowLoads; ++r) row[r] += Thread::kUnroll * g.x_apart;
    y += Thread::kUnroll * g.y_apart;
    left -= Thread::kUnroll * g.apart;
  } while (left > 0);
  add_and_store<Thread>(g, result, place, first_row, first_narrow, sum);
}

template <class Thread, class T>
void launch_narrow(const Gemm<T>& g, const NarrowProblem<T>& p, const NarrowPlan& plan,
                   const Epilogue& epilogue, Context& context) {
  const int apart = kNarrowThreads / plan.threads_rows * Thread::kPerLoadK;
  const int log_rows = std::countr_zero(unsigned(plan.threads_rows));
  const LaunchShape shape{
      dim3(unsigned(ceil_div(p.wide.side, int64_t(Thread::kRows) * plan.threads_rows)),
           unsigned(ceil_div(p.narrow.side, Thread::kNarrow)), unsigned(p.batch * plan.splits)),
      dim3(kNarrowThreads), 0, overlaps_well(g, p.batch)};
  launch_splits(g, p.batch, plan.splits, epilogue, context, [&](const Result<T>& result, int64_t columns) {
    const auto run = [&]<class S>() {
      const NarrowArguments<S, T> s{p,
                                    apart * p.wide.k_stride,
                                    apart * p.narrow.k_stride,
                                    columns,
                                    int(p.narrow.side),
                                    p.batch,
                                    apart,
                                    log_rows,
                                    std::countr_zero(unsigned(kNarrowThreads)) - log_rows,
                                    plan.part,
                                    int(p.wide.k - int64_t(plan.splits - 1) * plan.part),
                                    p.shape().lines_along_k(Thread::kReads),
                                    result,
                                    EpilogueOf<S>(epilogue)};
      launch<gemm_narrow_kernel<S, T>>("narrow", shape, context)(s);
    };
    if constexpr (Thread::kReads != Reads::along_rows && (kIsHalf<T> || std::is_same_v<T, float>)) {
      if (epilogue.asked() && plan.splits == 1) return run.template operator()<Fusing<Thread>>();
    }
    run.template operator()<Thread>();
  });
}

template <Reads reads, class T>
void launch_best(const Gemm<T>& g, const NarrowProblem<T>& p, const Epilogue& epilogue, Context& context) {
  const auto [thread, plan] = plans::choose_narrow(reads, int(sizeof(T)), p.shape(), multiprocessors());
  switch (thread.narrow) {
    case 1:
      return launch_narrow<NarrowThread<T, 1, reads>>(g, p, plan, epilogue, context);
    case 4:
      return launch_narrow<NarrowThread<T, 4, reads>>(g, p, plan, epilogue, context);
    default:
      return launch_narrow<NarrowThread<T, 8, reads>>(g, p, plan, epilogue, context);
  }
}

}  // namespace

void gemm_narrow(const GemmProblem& problem, Context& context) {
  // A contiguous column is computed as a row, because rows of one element would each take 16 bytes of the
  // workspace.
  const bool column = problem.n == 1 && problem.out.row_stride == 1;
  const GemmProblem in_rows = by_rows(column ? problem.transposed() : problem);
  const Epilogue& epilogue = in_rows.epilogue;
  run_every_type(in_rows, context, [&]<class T>(const Gemm<T>& g, int batch) {
    const NarrowProblem<T> p(g, batch);
    if (reads_along_k(p))
      launch_best<Reads::along_k>(g, p, epilogue, context);
    else if (reads_along_rows(p) && !epilogue.asked())
      launch_best<Reads::along_rows>(g, p, epilogue, context);
    else
      launch_best<Reads::elements>(g, p, epilogue, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
