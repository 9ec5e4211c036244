// The block tiles of mma_sync and grouped_mma, and how their warps multiply them.
#pragma once

#include "cuda/gemm/parts/storage_element.cuh"
#include "cuda/gemm/parts/warp_product.cuh"

namespace fastgemm::FASTGEMM_TARGET {

// In stages of kLargeMmaStageBytes.
template <int STAGES>
using LargeMmaTiles = TileConfig<128, 256, 64, 64, STAGES, 1>;
inline constexpr int kLargeMmaStageBytes = (128 + 256) * 128;

// Signed and unsigned bytes are both copied as int8. The instruction that multiplies them is the one for the
// signs of A and B.
template <class C, class T, bool a_along_k, bool b_along_k>
struct LargeMmaKernel {
  using Config = C;
  using Storage = StorageElement<T>;
  using TileA = LineTile<Storage, a_along_k, C::BM, SwizzledLines<8>>;  // (BM, 128 bytes)
  using TileB = LineTile<Storage, b_along_k, C::BN, SwizzledLines<8>>;  // (BN, 128 bytes)
  using Warp = WarpProduct<C, TensorCoreElement<T>, TileA, TileB>;
  static constexpr int kStageBytes = TileA::kBytes + TileB::kBytes;
  union Shared {
    unsigned char ring[C::kStages][kStageBytes];
    SlabInRing<Accumulator<T>, C, C::kStages * kStageBytes> slabs[C::kWarps];
  };
};

}  // namespace fastgemm::FASTGEMM_TARGET
