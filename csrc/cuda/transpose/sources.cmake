set(FASTGEMM_CUDA_TRANSPOSE
    csrc/cuda/transpose/flat.cu
    csrc/cuda/transpose/level1_naive.cu
    csrc/cuda/transpose/level2_shared.cu
    csrc/cuda/transpose/level3_padded.cu
    csrc/cuda/transpose/level4_vectorized.cu
    csrc/cuda/transpose/level5_saturating.cu
    csrc/cuda/transpose/level6_pipelined.cu)
