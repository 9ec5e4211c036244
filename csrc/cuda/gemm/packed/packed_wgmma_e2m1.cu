// The instances of packed_wgmma for e2m1 codes, in a file of their own so that they compile at the same time.
#include "cuda/gemm/packed/packed_wgmma.cuh"

namespace fastgemm::FASTGEMM_TARGET {
FASTGEMM_PACKED_INSTANCES(, e2m1)
}  // namespace fastgemm::FASTGEMM_TARGET
