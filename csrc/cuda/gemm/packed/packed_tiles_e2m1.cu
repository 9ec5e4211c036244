#include "cuda/gemm/packed/packed_tiles.cuh"

template struct fastgemm::FASTGEMM_TARGET::PackedTiles<fastgemm::Code::e2m1>;
