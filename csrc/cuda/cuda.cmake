# CUDA kernels. cudart is linked statically and the driver is looked up at first use, so that the library loads
# on a machine without either.
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

function(fastgemm_add_cuda_kernels OBJECTS)
  add_library(fastgemm_cuda OBJECT csrc/cuda/device/image.cu)
  set_target_properties(fastgemm_cuda PROPERTIES CUDA_ARCHITECTURES "${FASTGEMM_CUDA_ARCHS}" CUDA_STANDARD 20
                                                 CUDA_STANDARD_REQUIRED ON)
  target_link_libraries(fastgemm_cuda PUBLIC CUDA::cudart_static)
  set(${OBJECTS} ${${OBJECTS}} $<TARGET_OBJECTS:fastgemm_cuda> PARENT_SCOPE)
endfunction()
