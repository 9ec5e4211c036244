# Faults planted in copies of the kernels of csrc/cuda. cuda_on_host_test, which every kernel passes, must find each
# of them: a copy is compiled as the kernel is, and its row checked for one type.
set(planted_cuda ${CMAKE_SOURCE_DIR}/csrc/cuda)

# Kernels in a library of objects, instrumented.
function(fastgemm_add_planted_objects NAME)
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX)
  add_library(${NAME} OBJECT ${ARGN})
  fastgemm_instrument_simt(${NAME})
endfunction()

# The check, and kernels that other kernels launch.
add_library(planted_check OBJECT cuda_on_host_test.cpp check.cpp planted_launchers.cpp)
file(GLOB helpers CONFIGURE_DEPENDS ${planted_cuda}/gemm/parts/*.cu)
list(APPEND helpers ${planted_cuda}/transpose/copy.cu ${planted_cuda}/transpose/flat.cu)
fastgemm_add_planted_objects(planted_helpers ${helpers})

# A program that checks the kernels of these libraries.
function(fastgemm_add_planted_program NAME)
  set(objects)
  foreach(library fastgemm_simt_runtime planted_check planted_helpers ${ARGN})
    list(APPEND objects $<TARGET_OBJECTS:${library}>)
  endforeach()
  add_executable(${NAME} ${objects} ${FASTGEMM_OBJECTS})
  target_link_libraries(${NAME} PRIVATE Threads::Threads)
  add_dependencies(instrumented ${NAME})
endfunction()

# fastgemm_plant(name ROW launcher type KERNEL file [HEADER of it, to be changed instead]
#                TEXT that is there once [BY what replaces it] FINDING what the check says)
function(fastgemm_plant NAME)
  cmake_parse_arguments(PARSE_ARGV 1 plant "" "KERNEL;HEADER;TEXT;BY;FINDING" "ROW")
  set(file ${plant_KERNEL})
  if(plant_HEADER)
    set(file ${plant_HEADER})
  endif()
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${planted_cuda}/${file})
  file(READ ${planted_cuda}/${file} source)
  string(FIND "${source}" "${plant_TEXT}" first)
  string(FIND "${source}" "${plant_TEXT}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    add_test(NAME planted_${NAME} COMMAND ${CMAKE_COMMAND} -E echo "${file}: the text to replace is not there, or twice")
    set_tests_properties(planted_${NAME} PROPERTIES LABELS instrumented PASS_REGULAR_EXPRESSION "${plant_FINDING}")
    return()
  endif()
  string(REPLACE "${plant_TEXT}" "${plant_BY}" source "${source}")
  # In a folder of its own that looks like this one.
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/planted/${NAME}/csrc)
  file(CONFIGURE OUTPUT ${copy}/cuda/${file} CONTENT "${source}" @ONLY)
  set(kernel ${copy}/cuda/${plant_KERNEL})
  if(plant_HEADER)
    set(kernel ${planted_cuda}/${plant_KERNEL})
  endif()
  fastgemm_add_planted_objects(planted_${NAME}_kernel ${kernel})
  target_include_directories(planted_${NAME}_kernel BEFORE PRIVATE ${copy})
  fastgemm_add_planted_program(planted_${NAME} planted_${NAME}_kernel)
  add_test(NAME planted_${NAME} COMMAND planted_${NAME} ${plant_ROW})
  set_tests_properties(planted_${NAME} PROPERTIES LABELS instrumented PASS_REGULAR_EXPRESSION "${plant_FINDING}")
  set_property(GLOBAL APPEND PROPERTY planted_kernels ${planted_cuda}/${plant_KERNEL})
  list(JOIN plant_ROW " " row)
  set_property(GLOBAL APPEND PROPERTY planted_rows ${row})
endfunction()

fastgemm_plant(guard_off_by_one ROW gemm_naive float32 KERNEL gemm/ladder/level1_naive.cu
               TEXT [[if (row >= g.m || col >= g.n) return;]]
               BY [[if (row > g.m || col >= g.n) return;]]
               FINDING "out of bounds: .*level1_naive.cu:")
fastgemm_plant(barrier_dropped ROW gemm_tiled float32 KERNEL gemm/ladder/level2_tiled.cu
               TEXT [[    __syncthreads();  // all have read them
]]
               FINDING "race: .*level2_tiled.cu:")
fastgemm_plant(edge_off_by_one ROW gemm_tiled float32 KERNEL gemm/ladder/level2_tiled.cu HEADER gemm/parts/tile.cuh
               TEXT [[i < inside_rows && j < inside_cols ?]]
               BY [[i <= inside_rows && j < inside_cols ?]]
               FINDING "out of bounds: .*tile.cuh:")
fastgemm_plant(panel_misplaced ROW gemm_vectorized float64 KERNEL gemm/ladder/level4_vectorized.cu HEADER gemm/parts/panel_copy.cuh
               TEXT [[return along_k ? index / 2 % WIDTH : index % (WIDTH / kVector) * kVector;]]
               BY [[return along_k ? index % WIDTH : index % (WIDTH / kVector) * kVector;]]
               FINDING "race: .*panel_copy.cuh:")
fastgemm_plant(copies_not_waited_for ROW gemm_cp_async float32 KERNEL gemm/ladder/level5_cp_async.cu
               TEXT [[wait_async_copies<S::kStages - 2>();]]
               BY [[wait_async_copies<S::kStages - 1>();]]
               FINDING "in flight: .*level5_cp_async.cu:")
fastgemm_plant(fragment_index_wrong ROW gemm_cp_async float32 KERNEL gemm/ladder/level5_cp_async.cu
               HEADER gemm/parts/warp_tile.cuh
               TEXT [[sum[i][j] = multiply_add(f.a[i], f.b[j], sum[i][j]);]]
               BY [[sum[i][j] = multiply_add(f.a[i ^ 1], f.b[j], sum[i][j]);]]
               FINDING "wrong at")
fastgemm_plant(phase_not_waited_for ROW gemm_warp_specialized float64 KERNEL gemm/fast/warp_specialized.cu
               TEXT [[      wait_phase(&shared.barriers.full[at.stage], at.phase);
]]
               FINDING "race: .*warp_specialized.cu:")
fastgemm_plant(stage_released_early ROW gemm_warp_specialized float64 KERNEL gemm/fast/warp_specialized.cu
               TEXT [[shared.barriers.init(1, S::kWarps);]]
               BY [[shared.barriers.init(1, S::kWarps - 1);]]
               FINDING "race: .*warp_specialized.cu:")
fastgemm_plant(swizzle_not_one_to_one ROW transpose_saturating bits32 KERNEL transpose/level5_saturating.cu
               HEADER transpose/tile.cuh
               TEXT [[(down ^ turn(first) ^ turn(j))]]
               BY [[(down | (turn(first) ^ turn(j)))]]
               FINDING "race: .*tile.cuh:")
fastgemm_plant(wait_dropped ROW transpose_pipelined bits32 KERNEL transpose/level6_pipelined.cu
               TEXT [[  wait_async_copies<0>();
]]
               FINDING "in flight: .*level6_pipelined.cu:")

# The unchanged kernels pass the same checks.
get_property(kernels GLOBAL PROPERTY planted_kernels)
list(REMOVE_DUPLICATES kernels)
fastgemm_add_planted_objects(planted_nothing_kernels ${kernels})
fastgemm_add_planted_program(planted_nothing planted_nothing_kernels)
get_property(rows GLOBAL PROPERTY planted_rows)
list(REMOVE_DUPLICATES rows)
foreach(row ${rows})
  separate_arguments(arguments UNIX_COMMAND ${row})
  string(REPLACE " " "_" row ${row})
  add_test(NAME planted_nothing_${row} COMMAND planted_nothing ${arguments})
  set_tests_properties(planted_nothing_${row} PROPERTIES LABELS instrumented)
endforeach()
