# The library that replaces torch's products by fastgemm's. It uses torch's C++ interface, which changes
# between minor versions. There is therefore one library per version (with or without CUDA), and Python loads
# the one for the installed torch.
#
#   FASTGEMM_OVERRIDE_TORCHES  folders of further versions of torch, or of their headers: <folder>/version.py and
#                              <folder>/include. (tools/torch_headers.py fetches those of wheels.)

# Empty libraries with the names of torch's, for versions of which there are only headers. At run time the
# loader finds the real ones under these names, because `import torch` has loaded them.
foreach(name torch_cpu torch_python c10)
  file(WRITE ${CMAKE_BINARY_DIR}/stubs/${name}.cpp "")
  add_library(fastgemm_stub_${name} SHARED ${CMAKE_BINARY_DIR}/stubs/${name}.cpp)
  set_target_properties(fastgemm_stub_${name} PROPERTIES OUTPUT_NAME ${name}
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/stubs)
endforeach()

# Most of the compile time is for torch's headers, so the files are compiled as two. A unity build of CMake would
# include them by absolute paths, and ccache would find none of its results for another folder.
set(first at_once eager flags fused_layer gradients grouped interrupt layer modes)
set(second module overrides route scaled scaled_groups scales scope)
foreach(part first second)
  list(TRANSFORM ${part} REPLACE "(.+)" "#include \"torch/override/\\1.cpp\"  // NOLINT(bugprone-suspicious-include)")
  list(JOIN ${part} "\n" text)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/override/${part}.cpp CONTENT "${text}\n" @ONLY)
endforeach()

function(fastgemm_add_override torch_dir)
  file(STRINGS ${torch_dir}/version.py line REGEX "^__version__")
  string(REGEX REPLACE ".*'([0-9]+)\\.([0-9]+).*" "\\1_\\2" version "${line}")
  set(name fastgemm_override_${version})
  if(TARGET ${name})
    return()
  endif()
  add_library(${name} SHARED ${CMAKE_BINARY_DIR}/override/first.cpp ${CMAKE_BINARY_DIR}/override/second.cpp)
  string(REPLACE "_" "." version ${version})
  target_compile_definitions(${name} PRIVATE FASTGEMM_TORCH_VERSION="${version}")
  target_include_directories(${name} SYSTEM PRIVATE ${torch_dir}/include ${torch_dir}/include/torch/csrc/api/include)
  # torch's headers include pybind11's, whose inline code would bind the library to one version of Python. It
  # is not used here, so the linker removes it. Only python_error takes Python's interpreter lock, in a form
  # that needs Python's C interface alone.
  target_compile_definitions(${name} PRIVATE PYBIND11_SIMPLE_GIL_MANAGEMENT)
  target_compile_options(${name} PRIVATE -ffunction-sections -fdata-sections)
  target_link_libraries(${name} PRIVATE fastgemm -Wl,--gc-sections -Wl,--no-as-needed fastgemm_stub_torch_cpu fastgemm_stub_torch_python
                        fastgemm_stub_c10 Python::Module)
  target_link_options(${name} PRIVATE $<$<CONFIG:Release>:LINKER:--strip-all>)  # as libfastgemm
  set_target_properties(${name} PROPERTIES SKIP_BUILD_RPATH OFF BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
  install(TARGETS ${name} LIBRARY DESTINATION .)
endfunction()

foreach(torch_dir ${FASTGEMM_TORCH_DIR} ${FASTGEMM_OVERRIDE_TORCHES})
  fastgemm_add_override(${torch_dir})
endforeach()
