// How the main kernel's work is divided: segments of k, one launch each, and in each the tiles among the
// blocks.
#pragma once

#include "cuda/gemm/parts/chunks.cuh"
#include "cuda/gemm/parts/planes/pace.cuh"
#include "cuda/gemm/parts/planes/shape.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// The planes that exist at a time take at most 2 GiB, whatever the product's size: a larger product is
// computed in panels of C (panels.cuh), its k some segments at a time, a batch in pieces. Where one tile's
// planes alone would take more (int32 from k = 1.7 million on) level 5 computes it. Besides, a product of k >
// 16384 has the sums of a panel of C in the workspace.
inline constexpr int64_t kMostPlaneBytes = int64_t{2} << 30;

#if defined(__CUDACC__)
inline int64_t most_plane_bytes() { return kMostPlaneBytes; }
#else
// The simulator's module exports it: tests lower it, so that small products have panels, pieces and groups.
extern "C" {
[[gnu::visibility("default"), gnu::used]] inline int64_t fastgemm_most_plane_bytes = kMostPlaneBytes;
}
inline int64_t most_plane_bytes() { return fastgemm_most_plane_bytes; }
#endif

// `total` in parts of equal size, the first ones longer by 1.
struct Split {
  int64_t total;
  int parts;

  int64_t begin(int i) const { return i * (total / parts) + std::min<int64_t>(i, total % parts); }
  int64_t length(int i) const { return begin(i + 1) - begin(i); }
};

inline constexpr double kHandOver = 3;  // chunks: what it costs to hand sums over and to add them

// A long sum comes in segments, because what it loses with each promotion grows with all that came before: at
// k = 65536 the error on uniform data is 1.35 times cuBLAS's without segments, 0.78 with them.
struct Plan {
  static constexpr int kLongest = 512, kSegment = 256;  // stages

  int64_t tiles;
  int all, segments;  // stages of k, and in how many launches

  template <class S, class T>
  static Plan of(const Gemm<T>& g, int batch) {
    Plan p;
    p.tiles = int64_t(batch) * ceil_div(g.m, S::kM) * ceil_div(g.n, S::kN);
    p.all = int(ceil_div(g.k, S::Scheme::kStageK));
    const bool cuts = S::Scheme::kLoop == Loop::promoting && p.all > kLongest;
    p.segments = cuts ? int(ceil_div(p.all, kSegment)) : 1;
    return p;
  }

  int first(int segment) const { return int(Split{all, segments}.begin(segment)); }
  int stages(int segment) const { return first(segment + 1) - first(segment); }
  // So many that their planes, at least those of one, take no more than most_plane_bytes().
  template <class S, class T>
  int segments_at_a_time(const Gemm<T>& g, int batch) const {
    const int64_t rows = ceil_div(g.m, S::kM) * S::kImageA + ceil_div(g.n, S::kN) * S::kImageB;
    return int(std::clamp<int64_t>(most_plane_bytes() / (batch * rows * stages(0)), 1, segments));
  }
  // Units of work: at least one of a tile, the last one of up to 7 stages.
  int chunks(int segment) const { return std::max(stages(segment) / kChunk, 1); }
  int blocks(int segment) const { return count_blocks(tiles, chunks(segment)); }
  StreamK work(int segment) const {
    return plan_stream_k(tiles, chunks(segment), blocks(segment), {2, kHandOver});
  }
  // Whether blocks would drift apart.
  bool paces() const { return blocks(0) > 1 && tiles * stages(0) / blocks(0) >= Pace::kWorth; }
  bool shares() const { return work(0).whole_tiles < tiles || work(segments - 1).whole_tiles < tiles; }

  // Of the block that has most to do in the first segment, in chunks of a wide tile.
  double predicted_time(double tile_time) const {
    const StreamK w = work(0);
    const double whole = double(ceil_div(w.whole_tiles, blocks(0))) * chunks(0);
    const double shared = w.whole_tiles < tiles ? double(w.share + (w.longer > 0)) + kHandOver : 0;
    return (whole + shared) * tile_time;
  }
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
