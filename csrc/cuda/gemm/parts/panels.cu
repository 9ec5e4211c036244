// Level 5, first half: brings operands into the form of parts/panels.cuh. One launch packs both. It also
// clears the flags by which blocks of the main kernel hand over partial sums.
#include "cuda/device/vector.cuh"
#include "cuda/gemm/parts/panels.cuh"

namespace fastgemm::FASTGEMM_TARGET {
namespace {

constexpr int kTile = 64, kThreads = 256;  // a block packs 64 rows x 64 columns of words

// One operand: element (k, column) of a matrix lies at from + k * k_stride + column * column_stride.
template <class T>
struct PackJob {
  const T* from;
  int64_t k_stride, column_stride, batch_stride;
  int64_t k;
  PanelWord<T>* to;
  Panel<PanelWord<T>> panel;
  int64_t blocks_rows, blocks_columns, blocks;  // 0 blocks: nothing to pack
};

template <class T>
struct PackJobs {
  PackJob<T> job[2];  // A, B
};

// The word whose first element is at p: one element, or four int8 of consecutive k, with zeros past the last
// one.
template <class T>
__device__ __forceinline__ PanelWord<T> word_at(const T* p, int64_t k_stride, int64_t k_left) {
  if constexpr (kPerWord<T> == 1) {
    return widen(*p);
  } else {
    uint32_t word = 0;
    FASTGEMM_UNROLL
    for (int i = 0; i < kPerWord<T>; ++i)
      if (i < k_left) word |= (widen(p[i * k_stride]) & 0xffu) << (8 * i);
    return word;
  }
}

// A thread moves 16 words. In the direction in which lanes are neighbours it has the position `along`, in the
// other direction the positions `across`, across + kStep, and so on.
constexpr int kStep = kThreads / kTile, kWords = kTile / kStep;
struct PackPlace {
  int along, across;
  int64_t row0, column0;  // the begin of the tile
  int rows, columns;      // the part of the tile that lies inside the panel
};

// Lanes read along k and then write along the columns. The odd pitch avoids bank conflicts in both.
template <class T>
__device__ __forceinline__ void pack_transposed(const PackJob<T>& job, const T* from, PanelWord<T>* to,
                                                const PackPlace& at) {
  using Word = PanelWord<T>;
  FASTGEMM_SHARED Word tile[kTile][kTile + 1];  // (rows, columns)
  const int64_t k = (at.row0 + at.along) * kPerWord<T>;
  const T* p = from + k * job.k_stride + (at.column0 + at.across) * job.column_stride;
  Word held[kWords];  // all loads of a thread are in flight together
  FASTGEMM_UNROLL
  for (int i = 0; i < kWords; ++i, p += kStep * job.column_stride) {
    held[i] = 0;
    if (at.along < at.rows && at.across + i * kStep < at.columns)
      held[i] = word_at(p, job.k_stride, job.k - k);
  }
  FASTGEMM_UNROLL
  for (int i = 0; i < kWords; ++i) tile[at.along][at.across + i * kStep] = held[i];
  __syncthreads();
  Word* q = to + (at.row0 + at.across) * job.panel.row_stride + at.column0 + at.along;
  FASTGEMM_UNROLL
  for (int i = 0; i < kWords; ++i, q += kStep * job.panel.row_stride)
    if (at.across + i * kStep < at.rows && at.along < at.columns) *q = tile[at.across + i * kStep][at.along];
}

template <class T>
__device__ __forceinline__ void pack_straight(const PackJob<T>& job, const T* from, PanelWord<T>* to,
                                              const PackPlace& at) {
  using Word = PanelWord<T>;
  const int64_t k = (at.row0 + at.across) * kPerWord<T>;
  const T* p = from + k * job.k_stride + at.column0 + at.along;
  Word* q = to + (at.row0 + at.across) * job.panel.row_stride + at.column0 + at.along;
  Word held[kWords];
  FASTGEMM_UNROLL
  for (int i = 0; i < kWords; ++i, p += kStep * kPerWord<T> * job.k_stride)
    if (at.across + i * kStep < at.rows && at.along < at.columns)
      held[i] = word_at(p, job.k_stride, job.k - k - i * kStep * kPerWord<T>);
  FASTGEMM_UNROLL
  for (int i = 0; i < kWords; ++i, q += kStep * job.panel.row_stride)
    if (at.across + i * kStep < at.rows && at.along < at.columns) *q = held[i];
}

// Consecutive blocks go along the columns of a panel, so that they write neighbouring pieces of the same
// rows. As a __grid_constant__ the jobs stay in constant memory, where an index known only at run time costs
// nothing.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gemm_pack_kernel(const __grid_constant__ PackJobs<T> jobs, uint32_t* flags, int flag_count) {
  if (blockIdx.x == 0)
    for (int i = int(threadIdx.x); i < flag_count; i += kThreads) flags[i] = 0;
  const int64_t blocks_a = jobs.job[0].blocks;
  const int which = blockIdx.x >= blocks_a;
  const PackJob<T>& job = jobs.job[which];
  const int64_t block = blockIdx.x - which * blocks_a;
  if (block >= job.blocks) return;  // all threads of the block or none
  const int64_t row_and_batch = block / job.blocks_columns;
  const int64_t column0 = block % job.blocks_columns * kTile, row0 = row_and_batch % job.blocks_rows * kTile,
                batch = row_and_batch / job.blocks_rows;
  const PackPlace at{int(threadIdx.x) % kTile,
                     int(threadIdx.x) / kTile,
                     row0,
                     column0,
                     int(min(job.panel.rows - row0, int64_t(kTile))),
                     int(min(job.panel.columns - column0, int64_t(kTile)))};
  const T* from = job.from + batch * job.batch_stride;
  PanelWord<T>* to = job.to + batch * job.panel.batch_stride;
  job.column_stride == 1 ? pack_straight(job, from, to, at) : pack_transposed(job, from, to, at);
}

constexpr int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Whether the TMA or cp.async can read the operand in place.
template <class T>
bool is_panel(const PackJob<T>& job, bool shared) {
  if constexpr (sizeof(T) < sizeof(PanelWord<T>) || kPerWord<T> > 1) {
    return false;
  } else {
    const auto whole = [](int64_t stride) { return stride * int64_t(sizeof(T)) % 16 == 0; };
    return job.column_stride == 1 && is_aligned(job.from, 16) && whole(job.k_stride) &&
           job.k_stride >= job.panel.columns && (shared || (whole(job.batch_stride) && job.batch_stride > 0));
  }
}

// The panel of one operand: in place, or in new memory together with the job that fills it.
template <class T>
PackJob<T> plan(const T* from, int64_t columns, int64_t k, int64_t column_stride, int64_t k_stride,
                int64_t batch_stride, int batch, Context& context) {
  using Word = PanelWord<T>;
  const bool shared = batch == 1 || batch_stride == 0;
  PackJob<T> job{from, k_stride, columns == 1 ? 1 : column_stride, batch_stride, k, nullptr, {}, 0, 0, 0};
  Panel<Word>& panel = job.panel;
  panel = {nullptr, columns, ceil_div(k, kPerWord<T>), 0, 0};
  if (is_panel(job, shared)) {
    panel.data = reinterpret_cast<const Word*>(from);
    panel.row_stride = k_stride;
    panel.batch_stride = shared ? 0 : batch_stride;
    return job;
  }
  panel.row_stride = round_up(columns, 16 / int64_t(sizeof(Word)));
  const int64_t words = panel.rows * panel.row_stride, matrices = shared ? 1 : batch;
  panel.batch_stride = shared ? 0 : words;
  job.to = static_cast<Word*>(context.allocate(size_t(words * matrices) * sizeof(Word)));
  panel.data = job.to;
  job.blocks_rows = ceil_div(panel.rows, kTile);
  job.blocks_columns = ceil_div(columns, kTile);
  job.blocks = job.blocks_rows * job.blocks_columns * matrices;
  return job;
}

}  // namespace

template <class T>
Panels<PanelWord<T>> make_panels(const Gemm<T>& g, int batch, std::span<uint32_t> flags, Context& context) {
  const Operand<T>&a = g.a, &b = g.b;
  const PackJobs<T> jobs{
      {plan(a.data, g.m, g.k, a.row_stride, a.col_stride, a.batch_stride, batch, context),
       plan(b.data, g.n, g.k, b.col_stride, b.row_stride, b.batch_stride, batch, context)}};
  const int64_t blocks = std::max<int64_t>(jobs.job[0].blocks + jobs.job[1].blocks, !flags.empty());
  if (blocks > 0)
    launch<gemm_pack_kernel<T>>("pack_panels", {dim3(unsigned(blocks)), dim3(kThreads)}, context)(
        jobs, flags.data(), int(flags.size()));
  return {jobs.job[0].panel, jobs.job[1].panel};
}

template <class T>
Output<PanelWord<T>> output_of(const Gemm<T>& g) {
  const Result<T>& r = g.result;
  Output<PanelWord<T>> o;
  o.result = {r.out,          r.row_stride,     r.batch_stride, r.c,    r.c_row_stride,
              r.c_col_stride, r.c_batch_stride, r.alpha,        r.beta, false};
  o.stored = r.wide                        ? DType::f32
             : std::is_same_v<T, Half>     ? DType::f16
             : std::is_same_v<T, BFloat16> ? DType::bf16
             : std::is_same_v<T, double>   ? DType::f64
             : std::is_same_v<T, float>    ? DType::f32
             : std::is_same_v<T, int64_t>  ? DType::i64
                                           : DType::i32;
  return o;
}

#define FASTGEMM_MAKE_PANELS(T)                               \
  template Output<PanelWord<T>> output_of<T>(const Gemm<T>&); \
  template Panels<PanelWord<T>> make_panels<T>(const Gemm<T>&, int, std::span<uint32_t>, Context&);
FASTGEMM_MAKE_PANELS(double)
FASTGEMM_MAKE_PANELS(float)
FASTGEMM_MAKE_PANELS(Half)
FASTGEMM_MAKE_PANELS(BFloat16)
FASTGEMM_MAKE_PANELS(int8_t)
FASTGEMM_MAKE_PANELS(int32_t)
FASTGEMM_MAKE_PANELS(int64_t)
FASTGEMM_MAKE_PANELS(uint8_t)
FASTGEMM_MAKE_PANELS(int16_t)
#undef FASTGEMM_MAKE_PANELS

}  // namespace fastgemm::FASTGEMM_TARGET
