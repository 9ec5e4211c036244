# The CUDA kernels. cudart is linked statically and the driver is looked up at first use, so that the library
# loads on a machine without either. The tables are compiled in every build; without CUDA their rows say that
# they are unavailable.
set(FASTGEMM_CUDA_TABLES csrc/cuda/available.cpp csrc/cuda/add/table.cpp csrc/cuda/gemm/table.cpp
                         csrc/cuda/transpose/table.cpp)
# The same in builds with and without CUDA, and compiled by the same command, so that ccache finds them.
set(FASTGEMM_CUDA_PREDICTIONS csrc/cuda/architectures.cpp csrc/cuda/gemm/predict/counters.cpp
                              csrc/cuda/gemm/predict/facts.cpp csrc/cuda/gemm/predict/measured.cpp
                              csrc/cuda/gemm/predict/predict.cpp csrc/cuda/gemm/predict/rates.cpp)
include(csrc/cuda/architectures.cmake)

# One file for each kernel. csrc/simt compiles the same list as C++.
file(GLOB_RECURSE FASTGEMM_CUDA_GEMM RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/csrc/cuda/gemm/*.cu)
include(csrc/cuda/transpose/sources.cmake)
include(csrc/cuda/add/sources.cmake)
set(FASTGEMM_CUDA_KERNELS ${FASTGEMM_CUDA_GEMM} ${FASTGEMM_CUDA_TRANSPOSE} ${FASTGEMM_CUDA_ADD})

# Kernels without code of their own for Hopper: of mma.sync, and of the CUDA cores. Without FASTGEMM_CUDA_TWINS, the
# former are compiled for the first of the architectures, the latter for Hopper if it is among them.
set(FASTGEMM_CUDA_MMA_SYNC "/gemm/(fast/(grouped_mma|mma_sync)|ladder/level6_(mma|wmma)|packed/level6)")
string(CONCAT FASTGEMM_CUDA_SIMT "/(add|transpose|gemm/(experts|fast/(narrow|outer|small\\.)|fp8/quantize|parts"
                                 "|ladder/(level[1-4]|level5_cp)|packed/(dequantize|level[1-5])))")

function(fastgemm_add_cuda_kernels OBJECTS)
  add_library(fastgemm_cuda_tables OBJECT ${FASTGEMM_CUDA_TABLES})
  target_compile_definitions(fastgemm_cuda_tables PRIVATE FASTGEMM_HAS_CUDA=$<BOOL:${FASTGEMM_CUDA}>
                                                          FASTGEMM_CUDA_ARCHS=\"${FASTGEMM_CUDA_ARCHS_TEXT}\")
  add_library(fastgemm_cuda_predictions OBJECT ${FASTGEMM_CUDA_PREDICTIONS})
  list(APPEND ${OBJECTS} $<TARGET_OBJECTS:fastgemm_cuda_tables> $<TARGET_OBJECTS:fastgemm_cuda_predictions>)
  if(FASTGEMM_CUDA)
    target_link_libraries(fastgemm_cuda_tables PRIVATE CUDA::cudart_static)
    set(sources csrc/cuda/device/image.cu csrc/cuda/device/launch.cu csrc/cuda/device/tma.cu ${FASTGEMM_CUDA_KERNELS})
    add_library(fastgemm_cuda OBJECT ${sources})
    set_target_properties(fastgemm_cuda PROPERTIES CUDA_ARCHITECTURES OFF CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON)
    target_link_libraries(fastgemm_cuda PUBLIC CUDA::cudart_static)
    # By default ccache compares a file as preprocessed for one architecture. With CCACHE_DEPEND it compares
    # the file and its headers, which serves all architectures.
    if("${CMAKE_CUDA_COMPILER_LAUNCHER}" MATCHES "ccache$")
      set_target_properties(fastgemm_cuda PROPERTIES CUDA_COMPILER_LAUNCHER
                                                     "${CMAKE_COMMAND};-E;env;CCACHE_DEPEND=1;${CMAKE_CUDA_COMPILER_LAUNCHER}")
    endif()
    # The kernels of a type and of its twin (csrc/cuda/device/dispatch.cuh) have nearly the same machine code.
    option(FASTGEMM_CUDA_TWINS "compile the CUDA kernels that are like others: see CONTRIBUTING.md" ON)
    if(NOT FASTGEMM_CUDA_TWINS)
      target_compile_definitions(fastgemm_cuda PRIVATE FASTGEMM_NO_TWINS=1)
    endif()
    set(hopper "${FASTGEMM_CUDA_ARCHS}")
    list(FILTER hopper INCLUDE REGEX "^90a")
    foreach(source IN LISTS sources)
      set(archs "${FASTGEMM_CUDA_ARCHS}")
      if(NOT FASTGEMM_CUDA_TWINS AND source MATCHES "${FASTGEMM_CUDA_MMA_SYNC}")
        list(GET archs 0 archs)
      elseif(NOT FASTGEMM_CUDA_TWINS AND hopper AND source MATCHES "${FASTGEMM_CUDA_SIMT}")
        set(archs "${hopper}")
      endif()
      fastgemm_architecture_flags("${archs}" gencode)
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gencode}")
    endforeach()
    # A host call of a __device__ function compiles into exit(1) unless this is an error.
    target_compile_options(fastgemm_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=cross-execution-space-call>)
    # Unrolled code compresses to a tenth. The driver decompresses a file's kernels when the first of them is
    # loaded. Compression takes 0.3 s for a MB, which tools/compile_cuda.sh saves (none).
    set(FASTGEMM_CUDA_COMPRESSION size CACHE STRING "nvcc's --compress-mode")
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      target_compile_options(fastgemm_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--compress-mode=${FASTGEMM_CUDA_COMPRESSION}>)
    endif()
    list(APPEND ${OBJECTS} $<TARGET_OBJECTS:fastgemm_cuda>)
  endif()
  set(${OBJECTS} ${${OBJECTS}} PARENT_SCOPE)
endfunction()
