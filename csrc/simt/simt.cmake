# The CUDA kernels compiled as C++, and the runtime that executes them on the CPU. Call it from the folder whose
# targets link the result: there, and only there, a .cu file counts as C++.
function(fastgemm_add_simt_kernels OBJECTS)
  list(TRANSFORM FASTGEMM_CUDA_KERNELS PREPEND ${CMAKE_SOURCE_DIR}/ OUTPUT_VARIABLE kernels)
  set(runtime async.cpp counters.cpp device.cpp fiber.cpp memory.cpp order.cpp block.cpp runtime.cpp session.cpp symbols.cpp
              trace.cpp)
  list(TRANSFORM runtime PREPEND ${CMAKE_SOURCE_DIR}/csrc/simt/)
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX)
  add_library(fastgemm_simt OBJECT ${kernels} ${runtime})
  # A kernel reads the bytes of one type as another; nvcc lets it.
  target_compile_options(fastgemm_simt PRIVATE -fno-strict-aliasing)
  set(${OBJECTS} ${${OBJECTS}} $<TARGET_OBJECTS:fastgemm_simt> PARENT_SCOPE)
endfunction()
