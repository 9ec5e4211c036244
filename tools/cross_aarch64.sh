# Sourced by tools/build_wheels.sh if ARCH is aarch64 and this machine is not. $python is the interpreter that builds.
# $ROOT has Python of the same minor version for aarch64 (tools/aarch64_root.sh).
# shellcheck shell=bash
# shellcheck disable=SC2154
root=${ROOT:-$PWD/build/aarch64-root}
minor=$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')
if ! command -v "${CXX:-aarch64-linux-gnu-g++}" >/dev/null || ! [ -f "$root/usr/include/python$minor/Python.h" ]; then
  echo "build_wheels: aarch64 needs ${CXX:-aarch64-linux-gnu-g++} and Python $minor in $root (tools/aarch64_root.sh)" >&2
  exit 1
fi

# Debian's common pyconfig.h includes one from the folder of the system's C headers, which differ from those of the
# cross compiler.
cross=$PWD/build/aarch64-python
rm -rf "$cross" && mkdir -p "$cross"
cp -r "$root/usr/include/python$minor" "$cross/include"
cp "$root/usr/include/aarch64-linux-gnu/python$minor/pyconfig.h" "$cross/include"
cp "$root/usr/lib/python$minor/_sysconfigdata__linux_aarch64-linux-gnu.py" "$cross"

# shellcheck disable=SC2086
FASTGEMM_OVERRIDE_TORCHES=$("$python" tools/torch_headers.py --machine aarch64 ${TORCHES:-})
export FASTGEMM_OVERRIDE_TORCHES FASTGEMM_PYTHONS=''
export FASTGEMM_TORCH_DIR=${FASTGEMM_OVERRIDE_TORCHES##*;}  # the last, which is the newest
export CMAKE_TOOLCHAIN_FILE=$PWD/tools/aarch64.cmake FASTGEMM_PYTHON_INCLUDE=$cross/include

# Makes the interpreter that builds report the names and tags of aarch64.
as_target() {
  PYTHONPATH=$cross _PYTHON_SYSCONFIGDATA_NAME=_sysconfigdata__linux_aarch64-linux-gnu _PYTHON_HOST_PLATFORM=linux-aarch64 "$@"
}
