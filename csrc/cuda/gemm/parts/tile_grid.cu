#include <stdexcept>
#include <string>

#include "cuda/gemm/parts/tile_grid.cuh"

namespace fastgemm::FASTGEMM_TARGET {

TileGrid tile_grid(int64_t m, int64_t n, int bm, int bn, int batch) {
  const int64_t tiles_n = ceil_div(n, bn), tiles = ceil_div(m, bm) * tiles_n;
  if (tiles > INT32_MAX)
    throw std::length_error("fastgemm: a result of " + std::to_string(m) + " x " + std::to_string(n) +
                            " takes " + std::to_string(tiles) + " blocks, more than a grid has");
  return {dim3(unsigned(tiles), 1, unsigned(batch)), unsigned(tiles_n)};
}

}  // namespace fastgemm::FASTGEMM_TARGET
