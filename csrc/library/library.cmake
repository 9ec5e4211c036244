# Level 7. The rows of cuBLAS and cuBLASLt need the headers of these libraries. A full CUDA toolkit has them,
# and so has the package nvidia-cublas, which CUDA builds of torch install. At run time the libraries are
# those that torch loads.
if(FASTGEMM_CUDA)
  find_path(FASTGEMM_CUBLAS_INCLUDE cublasLt.h
            HINTS ${CUDAToolkit_INCLUDE_DIRS} ${FASTGEMM_TORCH_DIR}/../nvidia/cu13/include
                  ${FASTGEMM_TORCH_DIR}/../nvidia/cublas/include)
endif()

function(fastgemm_add_library_rows OBJECTS)
  add_library(fastgemm_library OBJECT csrc/library/table.cpp)
  if(FASTGEMM_CUDA AND FASTGEMM_CUBLAS_INCLUDE)
    message(STATUS "cuBLAS headers: ${FASTGEMM_CUBLAS_INCLUDE}")
    target_sources(fastgemm_library PRIVATE csrc/library/cublaslt.cpp csrc/library/cublas_geam.cpp)
    target_compile_definitions(fastgemm_library PRIVATE FASTGEMM_HAS_CUBLAS=1)
    target_include_directories(fastgemm_library SYSTEM PRIVATE ${FASTGEMM_CUBLAS_INCLUDE})
    target_link_libraries(fastgemm_library PRIVATE CUDA::cudart_static)
  endif()
  set(${OBJECTS} ${${OBJECTS}} $<TARGET_OBJECTS:fastgemm_library> PARENT_SCOPE)
endfunction()
