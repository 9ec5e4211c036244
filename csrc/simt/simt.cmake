# The CUDA kernels compiled as C++, and the runtime that executes them on the CPU.
set(FASTGEMM_SIMT_RUNTIME async.cpp block.cpp box.cpp cluster.cpp counters.cpp device.cpp fiber.cpp matrix.cpp memory.cpp
                          order.cpp resources.cpp rows.cpp runtime.cpp session.cpp symbols.cpp trace.cpp wgmma.cpp wide.cpp)

# The instrumentation of -fsanitize=thread calls trace.cpp for every memory access; its own runtime is not
# linked. With -Os, code and debug information are a quarter smaller than with -O2, and simulations are as fast:
# trace.cpp takes most of their time. The other flags keep accesses, variables and line numbers as in the source.
# No other sanitizer can be combined with it.
#
# Passes that take a fifth of the compiler's time, and without which simulations are as fast:
set(FASTGEMM_SIMT_CHEAP -fno-tree-vrp -fno-tree-dominator-opts -fno-tree-pre -fno-ivopts -fno-gcse -fno-schedule-insns2)
set(FASTGEMM_SIMT_INSTRUMENT -Os -g1 -gno-column-info -fsanitize=thread --param=tsan-instrument-func-entry-exit=0
    -fno-tree-vectorize -fno-tree-slp-vectorize -fno-store-merging -fno-tree-loop-distribute-patterns
    -fno-thread-jumps -fno-crossjumping -fno-tree-tail-merge -fno-toplevel-reorder
    ${FASTGEMM_SIMT_CHEAP})
# In these files -Os leaves loads in loops from which -O2 takes them, as nvcc does. Their counters then differ from those
# of a GPU (tools/ncu_check.py). All that includes cuda/transpose/tile.cuh is among them: the linker keeps one copy of its functions.
set(FASTGEMM_SIMT_HOISTED "/cuda/(gemm/(fast/(bf16x6|crt|dmma|skinny)|parts/mirror)|transpose/[a-z0-9_]+)\\.cu$")

# A process may load several modules with a simulator (notebooks/ladder_notes/own). None may use another's copy of a
# template's static variable.
set(FASTGEMM_SIMT_OWN_STATICS -fno-gnu-unique)

function(fastgemm_instrument_simt TARGET)
  # Kernels read bytes of one type as another type, which nvcc allows.
  target_compile_options(${TARGET} PRIVATE -fno-strict-aliasing ${FASTGEMM_SIMT_OWN_STATICS})
  if(FASTGEMM_SANITIZE)
    # Checks arithmetic and the bounds of arrays; these reports name lines without debug information. Pointers
    # are checked by the instrumented build. Checking them here would make compilation three times as long,
    # and optimizing it would add as much again.
    target_compile_options(${TARGET} PRIVATE -O0 -g0 -fno-sanitize=address,alignment -Wno-unused-function)
  else()
    target_compile_options(${TARGET} PRIVATE ${FASTGEMM_SIMT_INSTRUMENT} -Wno-maybe-uninitialized)
  endif()
endfunction()

# CMake treats a .cu file as C++ only in the folder that calls this.
function(fastgemm_add_simt_kernels OBJECTS)
  list(TRANSFORM FASTGEMM_CUDA_KERNELS PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE kernels)
  list(TRANSFORM FASTGEMM_SIMT_RUNTIME PREPEND ${CMAKE_SOURCE_DIR}/csrc/simt/ OUTPUT_VARIABLE runtime)
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  if(FASTGEMM_SANITIZE)
    # The types that tests/cpp multiplies. Instances for the others would take half of the build's time.
    set(products ${kernels})
    list(FILTER products INCLUDE REGEX "/cuda/gemm/")
    set_source_files_properties(${products} PROPERTIES COMPILE_DEFINITIONS FASTGEMM_THREE_TYPES=1)
  else()
    set(hoisted ${kernels})
    list(FILTER hoisted INCLUDE REGEX ${FASTGEMM_SIMT_HOISTED})
    set_source_files_properties(${hoisted} PROPERTIES COMPILE_OPTIONS -O2)
  endif()
  add_library(fastgemm_simt_kernels OBJECT ${kernels})
  if(FASTGEMM_SANITIZE)  # they are compiled only for the program that runs them (tests/cpp)
    set_target_properties(fastgemm_simt_kernels PROPERTIES EXCLUDE_FROM_ALL TRUE)
  endif()
  fastgemm_instrument_simt(fastgemm_simt_kernels)
  add_library(fastgemm_simt_runtime OBJECT ${runtime})
  target_compile_options(fastgemm_simt_runtime PRIVATE ${FASTGEMM_SIMT_OWN_STATICS})
  # One compilation, so that the calls for each access of a kernel are inlined.
  set(accesses ${runtime})
  list(FILTER accesses INCLUDE REGEX "/(trace|order|memory|runtime|block|fiber)\\.cpp$")
  set_source_files_properties(${accesses} PROPERTIES UNITY_GROUP accesses)
  set_target_properties(fastgemm_simt_runtime PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  if(FASTGEMM_SANITIZE)
    target_compile_options(fastgemm_simt_runtime PRIVATE -O2)  # the tests spend most of their time in it
  endif()
  # The runtime comes first. The linker keeps the first copy of an inline function that both use (such as
  # std::string's), and code that runs inside a callback must not be instrumented.
  set(${OBJECTS} ${${OBJECTS}} $<TARGET_OBJECTS:fastgemm_simt_runtime> $<TARGET_OBJECTS:fastgemm_simt_kernels>
      PARENT_SCOPE)
endfunction()
