set(FASTGEMM_CUDA_GEMM
    csrc/cuda/gemm/level1_naive.cu
    csrc/cuda/gemm/level2_tiled.cu
    csrc/cuda/gemm/level3_thread_tile.cu
    csrc/cuda/gemm/level4_vectorized.cu
    csrc/cuda/gemm/pitfall_double_buffer.cu
    csrc/cuda/gemm/pitfall_float4_padded65.cu)
