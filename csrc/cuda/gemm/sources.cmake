set(FASTGEMM_CUDA_GEMM csrc/cuda/gemm/level1_naive.cu)
