// The instances of packed_wgmma for e4m3 codes, in a file of their own so that they compile at the same time.
#include "cuda/gemm/packed/packed_wgmma.cuh"

namespace fastgemm::FASTGEMM_TARGET {
FASTGEMM_PACKED_INSTANCES_8_BITS(, e4m3)
}  // namespace fastgemm::FASTGEMM_TARGET
