# Flags of nvcc for FASTGEMM_CUDA_ARCHS, whose entries are those of CMAKE_CUDA_ARCHITECTURES.
#
# Machine code for an entry without a letter, such as 120-real, is made from PTX of compute capability 8.0.
# This is one source path, compiled once, for every GPU except Hopper. 90-real runs this path on Hopper, without
# wgmma and TMA, so an H100 can test the code of other GPUs. An entry with a letter, such as 90a-real, has the
# instructions of its own architecture.
function(fastgemm_architecture_flags ARCHS RESULT)
  if(NOT ARCHS)
    message(FATAL_ERROR "fastgemm: FASTGEMM_CUDA_ARCHS is empty; it names architectures such as 86-real")
  endif()
  set(flags "")
  foreach(entry IN LISTS ARCHS)
    if(NOT entry MATCHES "^([0-9]+)([af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "fastgemm: FASTGEMM_CUDA_ARCHS has '${entry}'; expected such as 80, 86-real, 90a-real or 80-virtual")
    endif()
    set(number ${CMAKE_MATCH_1})
    set(own ${CMAKE_MATCH_1}${CMAKE_MATCH_2})
    set(from ${own})
    set(kind "${CMAKE_MATCH_3}")
    if(number LESS 80)
      message(FATAL_ERROR "fastgemm: FASTGEMM_CUDA_ARCHS has '${entry}'; the kernels need 80 or later")
    endif()
    if(own STREQUAL number)
      set(from 80)
    endif()
    if(NOT kind STREQUAL "-virtual")
      list(APPEND flags -gencode=arch=compute_${from},code=sm_${own})
    endif()
    # PTX of 90a serves no GPU but that of its machine code.
    if(kind STREQUAL "-virtual" OR NOT (kind STREQUAL "-real" OR own MATCHES "a$"))
      list(APPEND flags -gencode=arch=compute_${own},code=compute_${own})
    endif()
  endforeach()
  # With both, a GPU could load the image without wgmma, in which the kernels for wgmma are empty.
  set(without_wgmma "${ARCHS}")
  set(with_wgmma "${ARCHS}")
  list(FILTER without_wgmma INCLUDE REGEX "^90(-real)?$")
  list(FILTER with_wgmma INCLUDE REGEX "^90a")
  if(without_wgmma AND with_wgmma)
    message(FATAL_ERROR "fastgemm: FASTGEMM_CUDA_ARCHS has ${without_wgmma} and ${with_wgmma}; a GPU needs one of them")
  endif()
  list(REMOVE_DUPLICATES flags)
  set(${RESULT} "${flags}" PARENT_SCOPE)
endfunction()
