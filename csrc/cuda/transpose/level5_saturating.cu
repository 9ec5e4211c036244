// Level 5: enough bytes in flight. It is level 4 with tiles whose rows have 256 bytes in src and in dst, and
// with 256 threads, each of which has at least 32 bytes in flight. The order of tiles suits DRAM: consecutive
// blocks go down src, so that they write neighbouring pieces of the same rows of dst while these DRAM pages
// are open. Loads and stores are plain: the streaming hints st.global.cs and L1::no_allocate were measured to
// be slower on Hopper.
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// Tiles of (256, 256) bytes, (128, 128) 16-bit elements, (64, 64) words, (32, 32) elements of 8 bytes, or
// (32, 64) of 16 bytes.
template <int Size>
inline constexpr int kBlocksDown = Size < 16 ? 16 : 32;
template <int Size>
inline constexpr int kBlocksAcross = Size < 16 ? 16 : 64;
template <int Size>
using SaturatingTile = Tile<Size, kBlocksDown<Size>, kBlocksAcross<Size>, 256>;

// The height of a band in tiles. Elements of 16 bytes whose rows lie 128 KB apart in both src and dst are
// faster in bands of 1024 rows. In all other cases bands cost time.
template <int Size>
uint32_t band_for(const Transpose& t) {
  constexpr int64_t kResonance = 128 * 1024;
  return Size == 16 && t.src_stride == kResonance && t.dst_stride == kResonance ? 32 : UINT32_MAX;
}

template <int Size, class Shape>
__global__ void __launch_bounds__(Shape::kThreads) transpose_saturating_kernel(Transpose batch, Tiles tiles) {
  FASTGEMM_DYNAMIC_SHARED(Unit, units);
  const Shape tile{units};
  const Tiles::Place place = tiles.in_bands(blockIdx.x);
  const Transpose t = batch.at_matrix(place.matrix);
  const auto part = tile.part_of(t, tiles, place);
  tile.load(t, part);
  __syncthreads();
  tile.store(t, part, tiles.step);
}

template <int Size, class Shape>
void launch_saturating(const Transpose& all, int64_t batch, Context& context, uint32_t band = UINT32_MAX) {
  launch_tiles(
      all, batch, Shape::size_for(all, batch),
      [&](const Transpose& t, const Tiles& tiles, unsigned count) {
        launch<transpose_saturating_kernel<Size, Shape>>(
            "saturating", {dim3(count), dim3(Shape::kThreads), Shape::kBytes}, context)(t, tiles);
      },
      band);
}

void transpose_saturating(const TransposeProblem& p, Context& context) {
  run_transpose<Narrow::flat>(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    if (is_short(p))
      launch_saturating<Size, ShortTile<Size>>(all, batch, context);
    else
      launch_saturating<Size, SaturatingTile<Size>>(all, batch, context, band_for<Size>(all));
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
