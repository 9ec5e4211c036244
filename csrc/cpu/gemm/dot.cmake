# The kernels on dedicated units of x86 processors: every file with its own instruction set and namespace.
# They need AVX-512 too, for packing and for the epilogue.
set(FASTGEMM_CPU_GEMM_DOT)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(dot_base -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512)
  function(fastgemm_add_dot_kernel FILE NAMESPACE)
    set_source_files_properties(${FILE} DIRECTORY ${CMAKE_SOURCE_DIR} PROPERTIES
      COMPILE_OPTIONS "${dot_base};${ARGN}" COMPILE_DEFINITIONS FASTGEMM_ISA=${NAMESPACE})
    set(FASTGEMM_CPU_GEMM_DOT ${FASTGEMM_CPU_GEMM_DOT} ${FILE} PARENT_SCOPE)
  endfunction()
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_dot_bf16.cpp dot_bf16 -mavx512bf16)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_dot_int8.cpp dot_int8 -mavx512vnni)
  fastgemm_add_dot_kernel(csrc/cpu/gemm/level6_amx.cpp amx -mamx-tile -mamx-bf16 -mamx-int8)
endif()
