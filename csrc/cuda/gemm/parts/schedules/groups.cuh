// Schedules of products with groups of uneven size (core/groups.h), for the kernels of specialized.cuh. The
// kernel reads the ends of the groups, so the host does not wait for them. Contract: all threads of the block
// call a schedule's plan_work(), which reads the ends. After a barrier, the schedule's other functions may be
// called; they are those of PersistentSchedule.
//
//   RowGroups   the groups are rows of C. Tiles of a group are numbered after those of the groups before, so
//               that blocks divide the tiles of all groups evenly, however uneven the groups are:
//
//                 group         0 (300 rows)   1 (none)   2 (40)   3 (700)
//                 tiles of 256  0 1                       2        3 4 5       times those along n
//
//   KGroups     the groups are parts of k, and each has a C of its own. All have the same number of tiles.
#pragma once

#include "cuda/gemm/parts/grouped_problem.cuh"
#include "cuda/gemm/parts/sources/gathered.cuh"
#include "cuda/gemm/parts/sources/ragged.cuh"
#include "cuda/gemm/parts/specialized.cuh"

namespace fastgemm::FASTGEMM_TARGET {

inline constexpr int kMostGroups = plans::kMostGroups;

// The kernel's arguments for a product of groups.
template <class T>
struct GroupArguments : Arguments<T> {
  const int32_t* ends;
  int groups;
  int size;          // the rows of C in all groups, or the values of k in all groups
  const void* bias;  // a number for each column of C, of the result's type; may be null
  int64_t bias_stride, bias_group_stride;
  Sharing sharing;
  GatheredRows gathered;  // the rows of Y; the index is null if they lie in the order of the groups

  __device__ __forceinline__ GroupRange range(int group) const { return GroupRange::of(ends, group, size); }
};

template <class T>
GroupArguments<T> group_arguments(const GemmProblem& p, const Gemm<T>& g, bool in_boxes) {
  const Result<T>& r = g.result;
  GroupArguments<T> a{};
  a.alpha = r.alpha, a.out_bytes = r.out_bytes();
  a.rows = {in_boxes ? nullptr : r.out, r.row_stride, r.batch_stride, int(g.m), int(g.n)};
  a.ends = p.groups.ends, a.groups = int(p.batch);
  a.size = int(p.groups.by == GroupedBy::m ? g.m : g.k);
  if (p.groups.rows)
    a.gathered = {p.groups.rows, static_cast<const unsigned char*>(p.a.data),
                  uint32_t(p.a.row_stride * int64_t{sizeof(T)}), int(g.k * int64_t{sizeof(T)}),
                  int(p.groups.rows_of_a)};
  if (p.beta != 0) a.bias = r.c, a.bias_stride = r.c_col_stride, a.bias_group_stride = r.c_batch_stride;
  return a;
}

// Adds a bias to a thread's sums of a tile of C^T, whose rows are columns of C. Row r of C^T gets number
// `first` + r of the bias.
template <class Out, class T, int R>
__device__ __forceinline__ void add_bias(float (&sum)[R], const GroupArguments<T>& g, int group, int row,
                                         int first) {
  float bias[2];
  FASTGEMM_UNROLL
  for (int i = 0; i < 2; ++i)
    bias[i] = widen(static_cast<const Out*>(
        g.bias)[group * g.bias_group_stride + (first + min(row + 8 * i, g.rows.n - 1)) * g.bias_stride]);
  FASTGEMM_UNROLL
  for (int i = 0; i < R; ++i) sum[i] += bias[i % 4 / 2];
}

// Sets the rows of C beyond the last group to zero. The first THREADS threads of each block call it.
template <class Out, int THREADS, class T>
__device__ __forceinline__ void clear_rest(void* out, const GroupArguments<T>& g) {
  const GroupRange rest = group_or_rest(g.ends, g.groups, g.groups, g.size);
  for (int row = rest.begin + int(blockIdx.x); row < rest.end; row += int(gridDim.x))
    for (int column = int(threadIdx.x); column < g.rows.n; column += THREADS)
      static_cast<Out*>(out)[row * g.rows.row_stride + column] = round_to<Out>(0.0f);
}

// The map of the rows of all groups, for tiles of C^T.
template <class T>
TensorMap map_of_group_rows(const Gemm<T>& g) {
  const Result<T>& result = g.result;
  const int bytes = result.out_bytes();
  const Swizzle width = box_swizzle(true, bytes);
  return ragged_map({result.out, bytes, g.n, g.m, 1, result.row_stride * bytes,
                     g.m * result.row_stride * bytes, int(width) / bytes, kBoxBytes / int(width), width});
}

// Where a tile lies: `row` and `column` are those of X and Y (wgmma_kernel.cuh).
struct GroupPlace {
  int batch, row, column;
};

// In shared memory: the tiles of all groups, and how blocks share them.
struct GroupTiles {
  StreamK work;
  int first[kMostGroups + 1];  // the tiles, along rows of C, of all groups before this one

  // The group of tile `at`. The lanes of a warp look at 32 groups at once. Empty groups begin where the next
  // group does, so the last group that begins at or before the tile is not empty.
  __device__ __forceinline__ int group_of(int at, int groups) const {
    constexpr unsigned kAll = 0xffffffffu;
    const int lane = fresh_lane();
    int begin = 0;
    if (groups > 32) {
      const int group = 32 * lane;
      begin = 32 * (__popc(__ballot_sync(kAll, group < groups && first[group] <= at)) - 1);
    }
    return begin + __popc(__ballot_sync(kAll, begin + lane < groups && first[begin + lane] <= at)) - 1;
  }
};

// Where the stages of a tile begin. load() asks for a stage, which has bytes() bytes. With groups of rows, X
// begins at row `x` of a group's matrix. Y has `boxes` boxes of rows and begins at row `y`.
inline constexpr int kRowsOfBox = 64;
struct RowsOrigin {
  int x, group, y, boxes;
  int value;  // the first row of the values in X, if X are gates and values
  int rows;   // of the group, from y on

  template <class X, class Y>
  __device__ __forceinline__ int bytes() const {
    return X::kBytes + boxes * (kRowsOfBox * 128);
  }
  template <class X>
  __device__ __forceinline__ void load_x(unsigned char* to, const TensorMap* of_x, Barrier* full,
                                         int step) const {
    if constexpr (requires { X::kGated; })
      X::load(to, of_x, full, x, value, step * X::kK, group);
    else
      X::load(to, of_x, full, x, step * X::kK, group);
  }
  template <class X, class Y>
  __device__ __forceinline__ void load(unsigned char* to, const TensorMap* of_x, const TensorMap* of_y,
                                       Barrier* full, int step) const {
    load_x<X>(to, of_x, full, step);
    FASTGEMM_NO_UNROLL
    for (int i = 0; i < boxes; ++i)
      load_box(to + X::kBytes + i * (kRowsOfBox * 128), of_y, full, step * Y::kK, y + i * kRowsOfBox, 0);
  }
};
// With groups of k, both operands begin at value `k` of the plane (parts/sources/ragged.cuh). The first stage
// may begin before the group.
struct KOrigin {
  int x, y, k, plane;

  template <class X, class Y>
  __device__ __forceinline__ int bytes() const {
    return X::kBytes + Y::kBytes;
  }
  template <class X, class Y>
  __device__ __forceinline__ void load(unsigned char* to, const TensorMap* of_x, const TensorMap* of_y,
                                       Barrier* full, int step) const {
    X::load(to, of_x, full, x, k + step * X::kK, plane);
    Y::load(to + X::kBytes, of_y, full, y, k + step * Y::kK, plane);
  }
};

// Tiles are those of C^T: the rows of X are columns of C (the weights of a group), and the rows of Y are rows
// of C.
template <class S_, class T>
struct RowGroups {
  using S = S_;
  using Element = T;
  static constexpr bool kTransposed = true;
  const GroupArguments<T>& g;
  const GroupTiles& tiles;

  __device__ __forceinline__ static void plan_work(GroupTiles& tiles, const GroupArguments<T>& g) {
    if (warp_index() != 0) return;
    const int lane = fresh_lane();
    int before = 0;
    for (int first = 0; first < g.groups; first += 32) {
      const int group = first + lane;
      const int rows = group < g.groups ? g.range(group).size() : 0, own = (rows + S::kN - 1) / S::kN;
      const int end = sum_to_here(own);
      if (group < g.groups) tiles.first[group] = before + end - own;
      before += __shfl_sync(0xffffffffu, end, 31);
    }
    if (lane != 0) return;
    tiles.first[g.groups] = before;
    tiles.work = share_tiles(int64_t{before} * g.schedule.tiles_m, g.schedule.stages / kChunk, g.sharing);
  }

  template <class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    Parts left(tiles.work, int(blockIdx.x), int(gridDim.x));
    Part part;
    while (left.next(part)) {
      const int begin = part.first * kChunk;
      body(part, begin, ends(part) ? g.schedule.stages : part.end * kChunk);
    }
  }
  __device__ __forceinline__ bool ends(const Part& part) const { return part.end == tiles.work.steps; }
  // Tiles of a gate and a value, which have twice the sums, are not shared.
  template <int R>
  __device__ __forceinline__ bool finishes(Accumulator<T> (&)[R], const Part&, int) const {
    return true;
  }
  __device__ __forceinline__ bool finishes(Accumulator<T> (&sum)[S::kSums], const Part& part,
                                           int warpgroup) const {
    const Schedule<Accumulator<T>> s{0, 0, tiles.work, g.schedule.partials, g.schedule.flags};
    return FASTGEMM_TARGET::finishes<S>(s, sum, part, warpgroup);
  }

  // The group of a tile, the tile's first row of X, and its first row in the group.
  __device__ __forceinline__ GroupPlace within_group(int tile) const {
    const int group = tiles.group_of(tile / g.schedule.tiles_m, g.groups);
    const int first = tiles.first[group];
    const TilePlace<16> place(tile - first * g.schedule.tiles_m, g.schedule.tiles_m,
                              tiles.first[group + 1] - first);
    return {group, place.row * S::kM, place.column * S::kN};
  }
  __device__ __forceinline__ RowsOrigin origin(const BoxMaps& maps, const Part& part) const {
    const GroupPlace at = within_group(part.tile);
    const GroupRange range = g.range(at.batch);
    return {at.row,   at.batch * maps.batch_x, range.begin + at.column, columns_at(at, range) / kRowsOfBox,
            g.rows.n, range.size() - at.column};
  }
  // The rows of the group in a tile, rounded up to whole boxes.
  __device__ __forceinline__ int columns_of(const Part& part) const
    requires(S::kN == 256 || S::kSkipsHalves)
  {
    const GroupPlace at = within_group(part.tile);
    return columns_at(at, g.range(at.batch));
  }
  __device__ __forceinline__ GroupPlace stored_at(int tile) const {
    const GroupPlace at = within_group(tile);
    const GroupRange range = g.range(at.batch);
    if (g.rows.data) return {0, at.row, range.begin + at.column};
    return {box_plane(range), at.row, box_row(range, g.size, at.column)};
  }
  __device__ __forceinline__ GroupPlace place(const Part& part) const { return stored_at(part.tile); }
  __device__ __forceinline__ ResultRows rows(int tile) const {
    ResultRows rows = g.rows;
    rows.m = g.range(within_group(tile).batch).end;
    return rows;
  }

 private:
  __device__ __forceinline__ static int columns_at(const GroupPlace& at, const GroupRange& range) {
    const int rows = min(range.size() - at.column, S::kN);
    return (rows + kRowsOfBox - 1) / kRowsOfBox * kRowsOfBox;
  }
  // Does the same as plan_stream_k() (predict/plans.h): the tiles of the last wave are shared where that
  // pays.
  __device__ __forceinline__ static StreamK share_tiles(int64_t tiles, int steps, const Sharing& sharing) {
    const int blocks = int(gridDim.x);
    const int64_t left = tiles % blocks;
    const float cost = float(sharing.hand_over) + float(sharing.collect) * float(blocks) / float(left);
    const bool pays = left > 0 && float(left) * float(steps) / float(blocks) + cost <= float(steps);
    const int64_t whole = pays ? tiles - left : tiles, shared = (tiles - whole) * steps;
    return {int(whole), steps, shared / blocks, int(shared % blocks)};
  }
};

// The tiles of a block if no tile is shared: a part is a tile with all of its stages. takes_half(): whether
// the group has rows only for the first half of the tile's columns.
template <class Schedule>
struct WholeTiles {
  const Schedule& schedule;

  __device__ __forceinline__ bool part(int i, Part& part) const {
    const int tile = int(blockIdx.x) + i * int(gridDim.x);
    part = {tile, 0, schedule.tiles.work.steps};
    return tile < schedule.tiles.work.whole_tiles;
  }
  __device__ __forceinline__ int stages_of(const Part&) const { return schedule.g.schedule.stages; }
  __device__ __forceinline__ bool takes_half(const Part& part) const {
    return schedule.columns_of(part) <= Schedule::S::kWidth;
  }
};

template <class S_, class T>
struct KGroups {
  using S = S_;
  using Element = T;
  static constexpr bool kTransposed = false;
  const GroupArguments<T>& g;
  const NoTail& tiles;

  __device__ __forceinline__ static void plan_work(NoTail&, const GroupArguments<T>&) {}

  template <class Body>
  __device__ __forceinline__ void each_part(Body&& body) const {
    const int tiles = g.groups * g.schedule.tiles_m * g.schedule.tiles_n;
    for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x))
      body(Part{tile, 0, 1}, 0, stages_of(g.range(stored_at(tile).batch)));
  }
  __device__ __forceinline__ bool ends(const Part&) const { return true; }
  __device__ __forceinline__ bool finishes(Accumulator<T> (&)[S::kSums], const Part&, int) const {
    return true;
  }
  __device__ __forceinline__ GroupPlace stored_at(int tile) const {
    const TilePlace<16> place(tile, g.schedule.tiles_m, g.schedule.tiles_n);
    return {place.batch, place.row * S::kM, place.column * S::kN};
  }
  __device__ __forceinline__ KOrigin origin(const BoxMaps&, const Part& part) const {
    const GroupPlace at = stored_at(part.tile);
    const GroupRange range = g.range(at.batch);
    return {at.row, at.column, range.size() - stages_of(range) * kK, range.begin};
  }
  __device__ __forceinline__ GroupPlace place(const Part& part) const { return stored_at(part.tile); }
  __device__ __forceinline__ const ResultRows& rows(int) const { return g.rows; }

 private:
  static constexpr int kK = 128 / int(sizeof(T));  // of a stage
  __device__ __forceinline__ static int stages_of(const GroupRange& range) {
    return max((range.size() + kK - 1) / kK, kChunk);
  }
};

// Like StageProducer (main_loop.cuh). The origin of a tile says how its stages are loaded.
template <int STAGES, int STAGE_BYTES, class X, class Y>
class GroupProducer {
 public:
  __device__ __forceinline__ GroupProducer(unsigned char* stages, RingBarriers<STAGES>& ring,
                                           const TensorMap& x, const TensorMap& y)
      : stages_(stages), ring_(ring), x_(x), y_(y) {}

  template <class Origin>
  __device__ __forceinline__ void fill(const Origin& from, int begin, int end, bool elected) {
    const int bytes = from.template bytes<X, Y>();
    FASTGEMM_NO_UNROLL
    for (int step = begin; step < end; ++step)
      ring_.fill(at_, elected, bytes, [&](int stage, Barrier* full) {
        from.template load<X, Y>(stages_ + stage * STAGE_BYTES, &x_, &y_, full, step);
      });
  }

 private:
  unsigned char* stages_;
  RingBarriers<STAGES>& ring_;
  const TensorMap &x_, &y_;
  RingPosition<STAGES> at_{0, 1};  // a new stage counts as empty
};

}  // namespace fastgemm::FASTGEMM_TARGET
