set(FASTGEMM_CPU_GEMM_SCALAR
    csrc/cpu/gemm/level1_naive.cpp
    csrc/cpu/gemm/level2_blocked.cpp
    csrc/cpu/gemm/level3_packed.cpp)
set(FASTGEMM_CPU_GEMM_ISA
    csrc/cpu/gemm/level4_simd.cpp
    csrc/cpu/gemm/level5_microkernel.cpp
    csrc/cpu/gemm/level6_pipelined.cpp
    csrc/cpu/gemm/level6_streamed_weights.cpp
    csrc/cpu/gemm/dequantize_block.cpp
    csrc/cpu/gemm/epilogue_pass.cpp
    csrc/cpu/gemm/experts.cpp
    csrc/cpu/gemm/fp8.cpp
    csrc/cpu/gemm/mirror_band.cpp
    csrc/cpu/gemm/small_routes.cpp)
# All instruction sets round each product and each sum of a weight, as packed::weight_of() does in code without fma.
set_source_files_properties(csrc/cpu/gemm/dequantize_block.cpp DIRECTORY ${CMAKE_SOURCE_DIR}
                            PROPERTIES COMPILE_OPTIONS -ffp-contract=off)
set(FASTGEMM_CPU_GEMM_PLAIN
    csrc/cpu/gemm/dequantize.cpp
    csrc/cpu/gemm/doubled_rows.cpp
    csrc/cpu/gemm/expert_passes.cpp
    csrc/cpu/gemm/fp8_passes.cpp
    csrc/cpu/gemm/mirror.cpp
    csrc/cpu/gemm/parallel.cpp
    csrc/cpu/gemm/part_scales.cpp
    csrc/cpu/gemm/predict/counts.cpp
    csrc/cpu/gemm/predict/families.cpp
    csrc/cpu/gemm/predict/library.cpp
    csrc/cpu/gemm/predict/points.cpp
    csrc/cpu/gemm/predict/predict.cpp
    csrc/cpu/gemm/predict/weights.cpp
    csrc/cpu/gemm/table.cpp)
include(csrc/cpu/gemm/dot.cmake)
