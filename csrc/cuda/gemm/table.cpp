// The rows of GEMM on CUDA.
#include "cuda/gemm/levels.h"
#include "cuda/gemm/suits.h"
#include "cuda/rows.h"

namespace fastgemm {
namespace {

using Gemm = void (*)(const GemmProblem&, Context&);

constexpr Kernel row(int level, std::string_view name, DTypeSet types, std::string_view summary, Gemm gemm,
                     Role role = Role::rung) {
  Kernel k = cuda::portable_row(Op::gemm, level, name, types, summary, role);
  k.gemm = gemm;
  return k;
}

constexpr Kernel hopper_row(int level, std::string_view name, DTypeSet types, std::string_view summary,
                            Gemm gemm) {
  Kernel k = row(level, name, types, summary, gemm);
  k.needs = "sm_90a";
  k.unavailable = cuda::unavailable_sm90a;
  return k;
}

// A row whose blocks take more shared memory than compute capability 8.6, 8.9 and 12.x have (99 KB).
const char* unavailable_large_block() {
  return cuda::unavailable_sm80(
      kLargeBlockBytes, "its blocks take up to 144 KB of shared memory, more than this GPU gives one");
}
constexpr Kernel large_block_row(int level, std::string_view name, DTypeSet types, std::string_view summary,
                                 Gemm gemm, Role role = Role::rung) {
  Kernel k = row(level, name, types, summary, gemm, role);
  k.needs = "sm_80, 144 KB a block";
  k.unavailable = unavailable_large_block;
  return k;
}

// What tensor cores multiply as it is, or rounded to tf32.
constexpr DTypeSet kTensorCoreTypes = dtypes(DType::f32, DType::f16, DType::bf16, DType::i8);

constexpr DTypeSet kDirectTypes = dtypes(DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8);

constexpr DTypeSet kHalfAndByte = dtypes(DType::f16, DType::bf16, DType::i8);

// Tensor cores round float32 operands to tf32.
constexpr Kernel tensor_core_row(Kernel k) {
  k.precision = Precision::tf32;
  return k;
}

// float32 as a sum of planes of fewer bits.
constexpr Kernel split_row(std::string_view name, std::string_view summary, Gemm gemm, Precision precision) {
  Kernel k = hopper_row(6, name, dtypes(DType::f32), summary, gemm);
  k.precision = precision;
  return k;
}

constexpr Kernel suited(Kernel k, bool (*suits)(const GemmProblem&)) {
  k.suits = suits;
  return k;
}

constexpr Kernel kRows[] = {
    row(1, "naive", kGemmTypes, "one thread an element of C, a warp along a row of C",
        FASTGEMM_LAUNCHER(gemm_naive)),
    row(1, "naive_uncoalesced", kGemmTypes, "the same, a warp along a column of C: 32 sectors a request",
        FASTGEMM_LAUNCHER(gemm_naive_uncoalesced), Role::companion),
    row(2, "tiled", kGemmTypes, "32 x 32 tiles in shared memory, one element a thread",
        FASTGEMM_LAUNCHER(gemm_tiled)),
    row(3, "thread_tile", kGemmTypes, "4 x 4 elements a thread from padded shared memory, free of conflicts",
        FASTGEMM_LAUNCHER(gemm_thread_tile)),
    row(3, "thread_tile_unpadded", kGemmTypes, "the same without padding: four rows of lanes share a bank",
        FASTGEMM_LAUNCHER(gemm_thread_tile_unpadded), Role::companion),
    row(4, "vectorized", kGemmTypes, "16-byte accesses, 8 x 8 elements a thread as a sum of outer products",
        FASTGEMM_LAUNCHER(gemm_vectorized)),
    row(4, "float4_padded68", dtypes(DType::f32),
        "4 x 4 elements a thread from float4 reads of rows of 68 words, whole vectors",
        FASTGEMM_LAUNCHER(gemm_float4_padded68), Role::companion),
    row(4, "float4_padded65", dtypes(DType::f32), "the same from rows of 65 words: float4 reads fall apart",
        FASTGEMM_LAUNCHER(gemm_float4_padded65), Role::pitfall),
    hopper_row(5, "warp_specialized", kGemmTypes,
               "8 x 16 sums a thread, a warp that only asks for copies, 192 KB of stages, stream-K",
               FASTGEMM_LAUNCHER(gemm_warp_specialized)),
    row(5, "cp_async", kGemmTypes, "warp tiles over packed panels, three asynchronous stages, split-K",
        FASTGEMM_LAUNCHER(gemm_cp_async)),
    row(5, "double_buffer_sync", dtypes(DType::f32),
        "vectorized with double buffers filled through registers: they spill",
        FASTGEMM_LAUNCHER(gemm_double_buffer_sync), Role::pitfall),
    suited(row(6, "narrow", kGemmTypes,
               "rows of one operand against up to 8 of the other, straight from global memory, one round of "
               "sums",
               FASTGEMM_LAUNCHER(gemm_narrow)),
           suits_narrow),
    suited(row(6, "direct", kDirectTypes,
               "32 x 32 tiles by mma.sync, fragments straight from global memory, float32 in fp64",
               FASTGEMM_LAUNCHER(gemm_direct)),
           suits_direct),
    suited(row(6, "small_tile", kHalfAndByte,
               "64 x 64 tiles by mma.sync or wgmma, up to 512 bytes of k asked for at once, operands of any "
               "alignment",
               FASTGEMM_LAUNCHER(gemm_small_tile)),
           suits_small_tile),
    suited(hopper_row(6, "skinny", kHalfAndByte,
                      "one operand streams by as the tensor cores' rows, all multiprocessors share its k",
                      FASTGEMM_LAUNCHER(gemm_skinny)),
           suits_skinny),
    suited(
        hopper_row(6, "split_k", kHalfAndByte, "k cut into parts, wgmma, a second kernel that adds the parts",
                   FASTGEMM_LAUNCHER(gemm_split_k)),
        suits_split_k),
    tensor_core_row(
        hopper_row(6, "wgmma_specialized", kTensorCoreTypes,
                   "a producer warp, two warpgroups of 64 x 256 sums, persistent blocks, asynchronous stores",
                   FASTGEMM_LAUNCHER(gemm_wgmma_specialized))),
    tensor_core_row(
        hopper_row(6, "wgmma", kTensorCoreTypes,
                   "64 x 128 sums a warpgroup by wgmma from stages that the tensor memory accelerator fills",
                   FASTGEMM_LAUNCHER(gemm_wgmma))),
    suited(split_row("fp16x3", "float32 as three products of fp16 planes, rows scaled by powers of two",
                     FASTGEMM_LAUNCHER(gemm_fp16x3), Precision::fp16x3),
           suits_three_planes),
    suited(split_row("bf16x3", "float32 as three products of bf16 planes: 16 of 24 bits",
                     FASTGEMM_LAUNCHER(gemm_bf16x3), Precision::bf16x3),
           suits_three_planes),
    suited(row(6, "batched", dtypes(DType::f32, DType::i32),
               "a block a tile of a small matrix, all of its k on the way at once",
               FASTGEMM_LAUNCHER(gemm_batched)),
           suits_batched),
    suited(split_row("bf16x6_fused",
                     "the same without a pre-pass, for narrow products, long sums and small batches",
                     FASTGEMM_LAUNCHER(gemm_bf16x6_fused), Precision::ieee),
           suits_fused),
    split_row("bf16x6",
              "float32 as six products of bf16 planes, summed in order: more accurate than float32 sums",
              FASTGEMM_LAUNCHER(gemm_bf16x6), Precision::ieee),
    hopper_row(6, "int8x10", dtypes(DType::i32),
               "int32 modulo 2^32 as ten products of byte planes, two sweeps over k",
               FASTGEMM_LAUNCHER(gemm_int8x10)),
    tensor_core_row(
        large_block_row(6, "mma_sync", kTensorCoreTypes,
                        "64 x 64 sums a warp by mma.sync, swizzled tiles, a ring of asynchronous stages",
                        FASTGEMM_LAUNCHER(gemm_mma_sync))),
    large_block_row(6, "dmma", dtypes(DType::f64), "the same on fp64 tensor cores, 64 x 32 sums a warp",
                    FASTGEMM_LAUNCHER(gemm_dmma)),
    tensor_core_row(large_block_row(6, "wmma", kTensorCoreTypes | dtypes(DType::f64),
                                    "CUDA's wmma from padded tiles, two of three stages on their way",
                                    FASTGEMM_LAUNCHER(gemm_wmma))),
    large_block_row(6, "dmma_m8n8k4", dtypes(DType::f64),
                    "dmma by m8n8k4, the one shape before Hopper: half the rate there",
                    FASTGEMM_LAUNCHER(gemm_dmma_m8n8k4), Role::companion),
};

}  // namespace

std::span<const Kernel> cuda_gemm_kernels() { return kRows; }

}  // namespace fastgemm
