# The CUDA kernels compiled as C++, and the runtime that executes them on the CPU.
set(FASTGEMM_SIMT_RUNTIME async.cpp block.cpp box.cpp cluster.cpp counters.cpp device.cpp fiber.cpp matrix.cpp memory.cpp
                          order.cpp rows.cpp runtime.cpp session.cpp symbols.cpp trace.cpp wgmma.cpp)

# Every access calls back into trace.cpp: the instrumentation of -fsanitize=thread, whose runtime is not linked.
# The other flags keep accesses and variables as the source has them, and line numbers. Instrumented code has no
# room for another sanitizer.
set(FASTGEMM_SIMT_INSTRUMENT -O2 -g1 -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -fno-tree-vectorize
    -fno-tree-slp-vectorize -fno-store-merging -fno-tree-loop-distribute-patterns -fno-thread-jumps
    -fno-crossjumping -fno-tree-tail-merge -fno-toplevel-reorder)

function(fastgemm_instrument_simt TARGET)
  # A kernel reads the bytes of one type as another; nvcc lets it.
  target_compile_options(${TARGET} PRIVATE -fno-strict-aliasing)
  if(FASTGEMM_SANITIZE)
    # Arithmetic and the bounds of arrays, whose reports name lines without debug information. Where a pointer leads is
    # what the instrumented build checks of every access; here it would take three times as long to compile, and
    # optimizing what is run a few times as long again.
    target_compile_options(${TARGET} PRIVATE -O0 -g0 -fno-sanitize=address,alignment)
  else()
    target_compile_options(${TARGET} PRIVATE ${FASTGEMM_SIMT_INSTRUMENT} -Wno-maybe-uninitialized)
  endif()
endfunction()

# A .cu file counts as C++ in the folder that calls this, and only there.
function(fastgemm_add_simt_kernels OBJECTS)
  list(TRANSFORM FASTGEMM_CUDA_KERNELS PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE kernels)
  list(TRANSFORM FASTGEMM_SIMT_RUNTIME PREPEND ${CMAKE_SOURCE_DIR}/csrc/simt/ OUTPUT_VARIABLE runtime)
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  add_library(fastgemm_simt_kernels OBJECT ${kernels})
  fastgemm_instrument_simt(fastgemm_simt_kernels)
  add_library(fastgemm_simt_runtime OBJECT ${runtime})
  if(FASTGEMM_SANITIZE)
    target_compile_options(fastgemm_simt_runtime PRIVATE -O2)  # it takes most of the time of the tests
  endif()
  # The runtime first: of an inline function that both use (std::string's), the linker takes the first copy, and
  # what runs inside a callback must not call back.
  set(${OBJECTS} ${${OBJECTS}} $<TARGET_OBJECTS:fastgemm_simt_runtime> $<TARGET_OBJECTS:fastgemm_simt_kernels>
      PARENT_SCOPE)
endfunction()
