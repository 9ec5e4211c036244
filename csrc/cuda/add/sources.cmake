set(FASTGEMM_CUDA_ADD
    csrc/cuda/add/level1_naive.cu
    csrc/cuda/add/level2_staged.cu
    csrc/cuda/add/level4_vectorized.cu
    csrc/cuda/add/level5_saturating.cu)
