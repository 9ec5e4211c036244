# CPU kernels. Each folder's sources.cmake sorts its files into
#   SCALAR  levels 1 to 3, built without vectorization, so that a rung shows only its own idea;
#   ISA     built once for each instruction set, in separate namespaces; the choice is made at run time;
#   PLAIN   all other files, for the oldest processor that this build supports.
include(csrc/cpu/gemm/sources.cmake)
include(csrc/cpu/transpose/sources.cmake)
include(csrc/cpu/add/sources.cmake)

set(FASTGEMM_ISAS baseline)
set(FASTGEMM_FLAGS_baseline "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND FASTGEMM_ISAS avx2 avx512)
  # GCC 13 and later do not fuse multiplication and addition in some chains of sums of at most 256 bits, if they expect
  # this to be faster. Then a row's bits would depend on the loop that sums it, and so on the other rows.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    set(always_fma --param=avoid-fma-max-bits=0)
  endif()
  set(FASTGEMM_FLAGS_avx2 -mavx2 -mfma -mf16c ${always_fma})
  set(FASTGEMM_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mprefer-vector-width=512
                            ${always_fma})
endif()

# make ladder: only this processor's instruction set, which halves the time of the CPU kernels. Linux lists what
# core/cpu_features.cpp asks the processor for.
option(FASTGEMM_NATIVE "compile CPU kernels only for the instruction set of this processor" OFF)
if(FASTGEMM_NATIVE AND avx512 IN_LIST FASTGEMM_ISAS)
  file(STRINGS /proc/cpuinfo features REGEX "^flags" LIMIT_COUNT 1)
  string(REGEX MATCHALL "[a-z0-9_]+" features "${features}")
  set(FASTGEMM_ISAS baseline)
  set(needs_avx2 avx2 fma f16c)
  set(needs_avx512 avx512f avx512bw avx512dq avx512vl)
  foreach(isa avx2 avx512)
    list(REMOVE_ITEM needs_${isa} ${features})
    if(NOT needs_${isa} AND NOT needs_avx2)
      set(FASTGEMM_ISAS ${isa})
    endif()
  endforeach()
  set_property(SOURCE csrc/core/cpu_features.cpp csrc/cpu/add/table.cpp csrc/cpu/gemm/dequantize.cpp
                      csrc/cpu/gemm/expert_passes.cpp csrc/cpu/gemm/fp8_passes.cpp csrc/cpu/gemm/mirror.cpp
                      csrc/cpu/gemm/table.cpp csrc/cpu/peak/peak.cpp csrc/cpu/transpose/table.cpp
               APPEND PROPERTY COMPILE_DEFINITIONS FASTGEMM_ONLY_ISA=${FASTGEMM_ISAS})
endif()

# -O2 and the loops that -O3 vectorizes: two thirds of the time and of the code. Nobody measures speed with the
# baseline of x86, and what the source of the other files leaves to the compiler is as fast. Packing is not: it stays
# at -O3. Nothing of this was measured on Arm.
set(FASTGEMM_SMALLER "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE STREQUAL Release AND
   CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(FASTGEMM_SMALLER -O2 -fvect-cost-model=dynamic)
endif()
if(avx2 IN_LIST FASTGEMM_ISAS AND NOT FASTGEMM_SANITIZE)
  set(FASTGEMM_FLAGS_baseline ${FASTGEMM_SMALLER})
endif()
set_source_files_properties(csrc/cpu/gemm/level4_simd.cpp csrc/cpu/gemm/level6_streamed_weights.cpp
                            PROPERTIES COMPILE_OPTIONS "${FASTGEMM_SMALLER}")

function(fastgemm_add_cpu_kernels OBJECTS)
  set(scalar ${FASTGEMM_CPU_GEMM_SCALAR} ${FASTGEMM_CPU_TRANSPOSE_SCALAR} ${FASTGEMM_CPU_ADD_SCALAR})
  set(per_isa ${FASTGEMM_CPU_GEMM_ISA} ${FASTGEMM_CPU_TRANSPOSE_ISA} ${FASTGEMM_CPU_ADD_ISA}
              csrc/cpu/peak/multiply_add.cpp)
  set(plain ${FASTGEMM_CPU_GEMM_PLAIN} ${FASTGEMM_CPU_TRANSPOSE_PLAIN} ${FASTGEMM_CPU_ADD_PLAIN} ${FASTGEMM_CPU_GEMM_DOT}
            csrc/cpu/peak/peak.cpp)

  add_library(fastgemm_cpu_scalar OBJECT ${scalar})
  target_compile_options(fastgemm_cpu_scalar PRIVATE -fno-tree-vectorize -fno-tree-slp-vectorize)
  add_library(fastgemm_cpu_plain OBJECT ${plain})
  set(objects $<TARGET_OBJECTS:fastgemm_cpu_scalar> $<TARGET_OBJECTS:fastgemm_cpu_plain>)
  foreach(isa ${FASTGEMM_ISAS})
    add_library(fastgemm_cpu_${isa} OBJECT ${per_isa})
    target_compile_definitions(fastgemm_cpu_${isa} PRIVATE FASTGEMM_ISA=${isa} FASTGEMM_ISA_${isa}=1)
    # GCC 12 has false warnings about undefined vectors in its AVX-512 headers (GCC bug 105593).
    target_compile_options(fastgemm_cpu_${isa} PRIVATE ${FASTGEMM_FLAGS_${isa}} -Wno-uninitialized -Wno-maybe-uninitialized)
    # Only the baseline is instrumented, which saves half of a sanitizer build's time. The others compute the same. Only
    # their accesses differ, by the vector width, and guard pages check these (tests/cpp/support.h).
    if(NOT isa STREQUAL baseline)
      fastgemm_leave_plain(fastgemm_cpu_${isa})
    endif()
    list(APPEND objects $<TARGET_OBJECTS:fastgemm_cpu_${isa}>)
  endforeach()
  set(${OBJECTS} ${${OBJECTS}} ${objects} PARENT_SCOPE)
endfunction()
