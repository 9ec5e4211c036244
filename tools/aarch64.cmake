# Toolchain file: compiles for aarch64 on a machine of another architecture. CMake takes it from the environment
# variable CMAKE_TOOLCHAIN_FILE, too.
#
#   CXX                       the cross compiler (default: aarch64-linux-gnu-g++)
#   FASTGEMM_PYTHON_INCLUDE   folder of the Python.h of that architecture, for the Python modules
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
if(DEFINED ENV{CXX})
  set(CMAKE_CXX_COMPILER $ENV{CXX})
else()
  set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
endif()
# Only Python's headers are looked for: the interpreter is the one of this machine.
if(DEFINED ENV{FASTGEMM_PYTHON_INCLUDE})
  set(Python_INCLUDE_DIR $ENV{FASTGEMM_PYTHON_INCLUDE} CACHE PATH "Python.h of aarch64")
endif()
