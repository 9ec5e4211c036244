// Divides the work of the main kernel: k into segments, one launch each, and the tiles of a segment among the
// blocks by stream-K.
//
//   stages of k   0          256         512         768
//                 |-----------|-----------|-----------|
//   launch        segment 0    segment 1   segment 2       segment s adds to what the launches before it
//                 sums  =      sums +=     C = alpha *     summed in the workspace; the last one writes C
//                                          (sums + ...)
#pragma once

#include "cuda/gemm/parts/planes/pace.cuh"
#include "cuda/gemm/parts/planes/shape.cuh"
#include "cuda/gemm/parts/reused_workspace.cuh"
#include "cuda/gemm/parts/schedules/chunks.cuh"

namespace fastgemm::FASTGEMM_TARGET::planes {

// Divides `total` into `parts` parts. If it is not a multiple, the first parts are longer by 1.
struct Split {
  int64_t total;
  int parts;

  int64_t begin(int i) const { return i * (total / parts) + std::min<int64_t>(i, total % parts); }
  int64_t length(int i) const { return begin(i + 1) - begin(i); }
};

struct Plan {
  int64_t tiles;
  int all, segments;  // all stages of k, and the number of launches that sum them
  Sharing sharing;

  template <class S, class T>
  static Plan of(const Gemm<T>& g, int batch) {
    Plan p;
    int64_t tiles_m = ceil_div(g.m, S::kM), tiles_n = ceil_div(g.n, S::kN);
    if constexpr (S::kLower) {
      const auto triangle = TrianglePlaces<S>::of(int(tiles_m), int(tiles_n));
      tiles_m = triangle.tiles_m, tiles_n = triangle.tiles_n;
    }
    p.tiles = int64_t(batch) * tiles_m * tiles_n;
    p.all = int(ceil_div(g.k, S::Scheme::kStageK));
    static_assert(S::Scheme::kTiles.promotes == (S::Scheme::kLoop == Loop::promoting));
    p.segments = plans::plane_segments(p.all, S::Scheme::kTiles);
    p.sharing = kIsInvariant<typename S::Scheme> ? plans::kUnshared : Sharing{2, plans::kHandOver};
    return p;
  }

  int first(int segment) const { return int(Split{all, segments}.begin(segment)); }
  int stages(int segment) const { return first(segment + 1) - first(segment); }
  // The number of segments whose planes can exist at the same time in most_plane_bytes(), at least one.
  template <class S, class T>
  int segments_at_a_time(const Gemm<T>& g, int batch) const {
    const int64_t rows = ceil_div(g.m, S::kM) * S::kImageA + ceil_div(g.n, S::kN) * S::kImageB;
    return int(std::clamp<int64_t>(most_plane_bytes() / (batch * rows * stages(0)), 1, segments));
  }
  int chunks(int segment) const { return plans::plane_chunks(stages(segment)); }
  int blocks(int segment) const { return plans::count_blocks(tiles, chunks(segment), multiprocessors()); }
  StreamK work(int segment) const { return plan_stream_k(tiles, chunks(segment), blocks(segment), sharing); }
  // Whether blocks have so many stages that they would drift apart.
  bool paces() const { return blocks(0) > 1 && tiles * stages(0) / blocks(0) >= Pace::kWorth; }
  bool shares() const { return work(0).whole_tiles < tiles || work(segments - 1).whole_tiles < tiles; }
};

}  // namespace fastgemm::FASTGEMM_TARGET::planes
