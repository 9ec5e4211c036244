// Level 4: wide accesses. A thread reads V rows of 16 bytes, where V is the number of elements in 16 bytes.
// It transposes the V x V block in its registers: whole words only change their names, smaller elements take
// byte permutations. Then it stores V units of 16 bytes to the tile in shared memory, which is also read 16
// bytes at a time. For fp32 the tile is that of level 3, (32, 32), but a quarter of the instructions move it,
// and each thread has 64 bytes in flight. Padding would break the alignment to 16 bytes, so the tile's units
// are XOR-swizzled instead.
//
// Rows of src that are not aligned to 16 bytes are read element by element. Rows of dst may begin at any
// address.
#include "cuda/transpose/levels.h"
#include "cuda/transpose/tile.cuh"

namespace fastgemm::FASTGEMM_TARGET {

constexpr int kVectorizedThreads = 64;
template <int Size>
using VectorizedTile = Tile<Size, 8, 8, kVectorizedThreads>;  // (8 V, 8 V)

template <int Size>
__global__ void __launch_bounds__(kVectorizedThreads)
    transpose_vectorized_kernel(Transpose batch, Tiles tiles) {
  FASTGEMM_DYNAMIC_SHARED(Unit, units);
  const VectorizedTile<Size> tile{units};
  const Tiles::Place place = tiles.along_rows(blockIdx.x);
  const Transpose t = batch.at_matrix(place.matrix);
  const auto part = tile.part_of(t, tiles, place);
  tile.load(t, part);
  __syncthreads();
  tile.store(t, part, tiles.step);
}

void transpose_vectorized(const TransposeProblem& p, Context& context) {
  run_transpose<Narrow::flat>(p, context, [&]<int Size>(const Transpose& all, int64_t batch) {
    using Shape = VectorizedTile<Size>;
    launch_tiles(
        all, batch, Shape::size_for(all, batch), [&](const Transpose& t, const Tiles& tiles, unsigned count) {
          launch<transpose_vectorized_kernel<Size>>(
              "vectorized", {dim3(count), dim3(kVectorizedThreads), Shape::kBytes}, context)(t, tiles);
        });
  });
}

}  // namespace fastgemm::FASTGEMM_TARGET
