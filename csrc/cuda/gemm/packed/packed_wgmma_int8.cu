// The instances of packed_wgmma for int8 codes, in a file of their own so that they compile at the same time.
#include "cuda/gemm/packed/packed_wgmma.cuh"

namespace fastgemm::FASTGEMM_TARGET {
FASTGEMM_PACKED_INSTANCES_8_BITS(, int8)
}  // namespace fastgemm::FASTGEMM_TARGET
