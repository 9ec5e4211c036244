// Level 6 for products one side of which is narrow (up to 4, in few products up to 32; int32 up to 16, and
// all small products): one operand, X (wide, k), is read once and has little to do for each element, the
// other, Y (narrow, k), stays in the caches. What changes from the tiles of the other rungs: no operand goes
// through shared memory, and no barrier stands before the sums. The threads of a block lie in a grid over
// rows of X and over k that the host lays out to fit the shape (narrow_plan.cuh); all loads of a thread's
// step are independent, of 16 bytes where the operand allows it, and the first step is all there is where k
// is short. Most such products are over in the time of a launch and two misses: what is before the first load
// is a few instructions. The sums of the threads that share rows meet once in shared memory, in a fixed
// order.
#include "cuda/device/sync.cuh"
#include "cuda/gemm/fast/narrow_plan.cuh"
#include "cuda/gemm/parts/split_k.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

template <class T>
struct NarrowArguments {
  const T *x, *y;
  int64_t x_row, x_k, y_row, y_k, x_batch, y_batch;  // strides
  int64_t x_apart, y_apart;                          // elements from one load of a thread along k to the next
  int64_t wide, columns_written;
  int narrow, batch, apart;  // apart: values of k from one load of a thread to the next
  int log_rows, log_k;       // threads of a block along rows and along k
  int part, last_part;       // values of k of a block, of the last one that shares it
  bool k_first, swapped;     // neighbouring threads are neighbours along k; rows of X are columns of C
  Result<T> result;
};

struct Place {
  int row, k;  // of a thread in its block
};

// Adds the sums of all threads that share a row, a warp for each of a thread's values, and stores them.
template <class Thread, class T>
__device__ __forceinline__ void add_and_store(const NarrowArguments<T>& g, const Result<T>& result,
                                              Place place, int64_t first_row, int first_narrow,
                                              const Accumulator<T> (&sum)[Thread::kRows][Thread::kNarrow]) {
  using Acc = Accumulator<T>;
  constexpr int kValues = Thread::kRows * Thread::kNarrow, kWarps = kNarrowThreads / 32;
  constexpr int kMost = sizeof(Acc) == 8 ? 8 : 16, kSlab = kValues < kMost ? kValues : kMost;
  // Of each value a matrix (threads along k, threads along rows), written along either without conflicts.
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
        if (lane >= threads || wide >= g.wide || narrow >= g.narrow) continue;
        const int64_t row = g.swapped ? narrow : wide, column = g.swapped ? wide : narrow;
        result.store(row, column, total);
        // Rows of the workspace are whole vectors.
        if (column != (g.swapped ? g.wide : g.narrow) - 1) continue;
        FASTGEMM_NO_UNROLL
        for (int64_t pad = column + 1; pad < g.columns_written; ++pad) result.store(row, pad, Acc(0));
      }
    }
  }
}

// A thread's next values of k, all of them asked for before the first is used: rows of X against as many of Y
// as there are, up to row `last` of them; zeros from `left` values on. float32 sums of a step are added to
// those before it when they are complete, so that errors grow with steps and not with k.
template <class Thread, class T>
__device__ __forceinline__ void multiply_step(const NarrowArguments<T>& g,
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
  Acc part[Thread::kRows][Thread::kNarrow] = {};
  FASTGEMM_UNROLL
  for (int u = 0; u < Thread::kUnroll; ++u) {
    YVector b[Thread::kNarrow] = {};
    FASTGEMM_UNROLL
    for (int j = 0; j < Thread::kNarrow; ++j)
      if (u * g.apart < left) b[j] = load_vector<YVector>(y + min(j, last) * g.y_row + u * g.y_apart);
    FASTGEMM_UNROLL
    for (int r = 0; r < Thread::kRows; ++r) {
      FASTGEMM_UNROLL
      for (int j = 0; j < Thread::kNarrow; ++j) {
        Acc& to = kApart ? part[r][j] : sum[r][j];
        FASTGEMM_UNROLL
        for (int v = 0; v < Thread::kPerLoadK; ++v) {
          const T x = Thread::kVectorRows ? a[u][0][r] : a[u][r % Thread::kRowLoads][v];
          to = multiply_add(Acc(widen(x)), Acc(widen(b[j][v])), to);
        }
        if (kApart && u == Thread::kUnroll - 1) sum[r][j] += to;
      }
    }
  }
}

template <class Thread, class T>
__global__ void __launch_bounds__(kNarrowThreads, sizeof(T) == 8 ? 2 : Thread::kResident)
    gemm_narrow_kernel(const __grid_constant__ NarrowArguments<T> g) {
  let_next_kernel_begin();
  const int log_first = g.k_first ? g.log_k : g.log_rows;
  const int low = int(threadIdx.x) & ((1 << log_first) - 1), high = int(threadIdx.x) >> log_first;
  const Place place = g.k_first ? Place{high, low} : Place{low, high};
  const int at_k = place.k * Thread::kPerLoadK;
  const int64_t first_row = (int64_t(blockIdx.x) * Thread::kRows) << g.log_rows;
  const int first_narrow = int(blockIdx.y) * Thread::kNarrow, last = g.narrow - 1 - first_narrow;
  const T *x = g.x + at_k * g.x_k, *y = g.y + first_narrow * g.y_row + at_k * g.y_k;
  Result<T> result = g.result;
  if (gridDim.z > 1) {  // parts of k, and matrices of the batch
    const int split = int(blockIdx.z) / g.batch, matrix = int(blockIdx.z) % g.batch;
    const int64_t k0 = int64_t(split) * g.part;
    x += matrix * g.x_batch + k0 * g.x_k, y += matrix * g.y_batch + k0 * g.y_k;
    result.out = static_cast<char*>(result.out) + blockIdx.z * result.batch_stride * result.out_bytes();
    result.c = static_cast<const char*>(result.c) + matrix * result.c_batch_stride * result.out_bytes();
  }
  int left = (int(blockIdx.z) < int(gridDim.z) - g.batch ? g.part : g.last_part) - at_k;
  // Rows behind the last one are read as the last one, and not stored.
  const T* row[Thread::kRowLoads];
  FASTGEMM_UNROLL
  for (int r = 0; r < Thread::kRowLoads; ++r) {
    if constexpr (Thread::kVectorRows)
      row[r] = x + min(first_row + place.row * Thread::kRows, g.wide - Thread::kRows);
    else
      row[r] = x + min(first_row + place.row + (r << g.log_rows), g.wide - 1) * g.x_row;
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
void launch_narrow(const Gemm<T>& g, const NarrowProblem<T>& p, const NarrowPlan& plan, Context& context) {
  const int apart = kNarrowThreads / plan.threads_rows * Thread::kPerLoadK;
  NarrowArguments<T> s{p.x, p.y, p.x_row, p.x_k, p.y_row, p.y_k, p.x_batch, p.y_batch};
  s.x_apart = apart * p.x_k, s.y_apart = apart * p.y_k;
  s.wide = p.wide, s.columns_written = g.n;
  s.narrow = int(p.narrow), s.batch = p.batch, s.apart = apart;
  s.log_rows = std::countr_zero(unsigned(plan.threads_rows));
  s.log_k = std::countr_zero(unsigned(kNarrowThreads)) - s.log_rows;
  s.k_first = lines_along_k<Thread>(p);

  s.part = plan.part, s.last_part = int(p.k - int64_t(plan.splits - 1) * plan.part);
  s.swapped = p.swapped, s.result = g.result;
  const auto run = [&] {
    const LaunchShape shape{
        dim3(unsigned(ceil_div(p.wide, int64_t(Thread::kRows) * plan.threads_rows)),
             unsigned(ceil_div(p.narrow, Thread::kNarrow)), unsigned(p.batch * plan.splits)),
        dim3(kNarrowThreads)};
    launch<gemm_narrow_kernel<Thread, T>>("narrow", shape, context)(s);
  };
  if (plan.splits == 1) return run();
  const auto sums = split_sums(g, p.batch, plan.splits, context);
  s.columns_written = sums.pitch, s.result = result_in<T>(sums);
  run();
  add_splits(sums, g, context);
}

// With one row of Y a thread the blocks are many and little, with eight X is read least.
template <Reads reads, class T>
void launch_best(const Gemm<T>& g, const NarrowProblem<T>& p, Context& context) {
  using One = NarrowThread<T, 1, reads>;
  using Four = NarrowThread<T, 4, reads>;
  using Eight = NarrowThread<T, 8, reads>;
  constexpr int64_t kMostBlocksY = 65535;
  const NarrowPlan one = narrow_plan<One>(p);
  if (p.narrow == 1) return launch_narrow<One>(g, p, one, context);
  const NarrowPlan four = narrow_plan<Four>(p), eight = p.narrow > 4 ? narrow_plan<Eight>(p) : four;
  if (p.narrow <= kMostBlocksY && one.microseconds <= std::min(four.microseconds, eight.microseconds))
    return launch_narrow<One>(g, p, one, context);
  if (p.narrow <= 4 || (p.narrow <= kMostBlocksY && four.microseconds <= eight.microseconds))
    return launch_narrow<Four>(g, p, four, context);
  launch_narrow<Eight>(g, p, eight, context);
}

}  // namespace

void gemm_narrow(const GemmProblem& problem, Context& context) {
  // A column that lies like a row is computed as one: rows of one element would each fill 16 bytes of the
  // workspace.
  const bool column = problem.n == 1 && problem.out.row_stride == 1;
  run_every_type(column ? problem.transposed() : problem, context, [&]<class T>(const Gemm<T>& g, int batch) {
    const NarrowProblem<T> p(g, batch);
    if (reads_along_k(p))
      launch_best<Reads::along_k>(g, p, context);
    else if (reads_along_rows(p))
      launch_best<Reads::along_rows>(g, p, context);
    else
      launch_best<Reads::elements>(g, p, context);
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
