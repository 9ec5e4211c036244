# Kernels for dedicated units of some processors. Every file has its own instruction set and namespace.
set(FASTGEMM_CPU_GEMM_DOT)
function(fastgemm_add_dot_kernel FILE NAMESPACE)
  set_source_files_properties(${FILE} DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES
    COMPILE_OPTIONS "${ARGN}" COMPILE_DEFINITIONS FASTGEMM_ISA=${NAMESPACE})
  set(FASTGEMM_CPU_GEMM_DOT ${FASTGEMM_CPU_GEMM_DOT} ${FILE} PARENT_SCOPE)
endfunction()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # They need AVX-512 too, for packing and for the epilogue.
  set(dot_base -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_dot_bf16.cpp dot_bf16 ${dot_base} -mavx512bf16)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_streamed_bf16.cpp streamed_bf16 ${dot_base} -mavx512bf16)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_dot_int8.cpp dot_int8 ${dot_base} -mavx512vnni)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_amx.cpp amx ${dot_base} -mavx512bf16 -mprfchw -mamx-tile -mamx-bf16 -mamx-int8)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_mmla_bf16.cpp mmla_bf16 -march=armv8.2-a+bf16)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_mmla_int8.cpp mmla_int8 -march=armv8.2-a+i8mm)
endif()
