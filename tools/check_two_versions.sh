#!/usr/bin/env bash
# Tests one binary with two versions of torch: runs the tests of the ops with a libfastgemm.so that was built with
# another torch than the one here. Copy the library to a machine with the other torch, and run this there, in a checkout
# of the commit that the library was built from:
#
#   tools/check_two_versions.sh path/to/libfastgemm.so [more arguments for pytest]
#
# Override libraries (make wheels builds one per version) are taken from the library's folder. Without the one for the
# other torch, patches raise an error.
#
#   PYTHON   interpreter of an environment with the other torch, cmake, ninja, nanobind and pytest (default: python3)
#   TESTS    what to run (default: the ops, their errors, gradients and opcheck, on every device that is here)
#
# Python modules are taken from the same folder if the interpreter can load them (make wheels builds them for every
# Python). Otherwise they are compiled, which takes a second and needs neither torch's headers nor CUDA.
set -euo pipefail
library=$(realpath "${1:?usage: tools/check_two_versions.sh path/to/libfastgemm.so [arguments for pytest]}")
shift
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp -r python/fastgemm "$work/"
rm -f "$work"/fastgemm/*.so
cp "$library" "$work/fastgemm/libfastgemm.so"
find "$(dirname "$library")" -maxdepth 1 -name 'libfastgemm_override_*.so' -exec cp {} "$work/fastgemm/" ';'
find "$(dirname "$library")" -maxdepth 1 \( -name '_*.so' -o -name 'libfastgemm_simt.so' \) -exec cp {} "$work/fastgemm/" ';'
if ! "$python" - "$work/fastgemm" <<'PY'
import importlib.machinery as machinery, pathlib, sys
folder = pathlib.Path(sys.argv[1])
sys.exit(not any((folder / f"_introspect{suffix}").exists() for suffix in machinery.EXTENSION_SUFFIXES))
PY
then
  cmake -S csrc/python -B "$work/build" -G Ninja -DPython_EXECUTABLE="$(command -v "$python")" \
    -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" -DFASTGEMM_LIBRARIES="$work/fastgemm" \
    -DCMAKE_INSTALL_PREFIX="$work/fastgemm" >/dev/null
  cmake --build "$work/build" >/dev/null
  cmake --install "$work/build" >/dev/null
fi

export PYTHONPATH=$work${PYTHONPATH:+:$PYTHONPATH}
"$python" - "$work" <<'PY'
import sys, torch, fastgemm
assert fastgemm.__file__.startswith(sys.argv[1]), fastgemm.__file__
info = fastgemm.build_info()
print(f"built against torch {info['torch_at_build']}, running under torch {info['torch']} ({info['cuda_device']})")
print("override library:", info["override_library"])
if info["torch_at_build"].partition("+")[0] == info["torch"].partition("+")[0]:
    sys.exit("check_two_versions: both are the same version, so nothing is shown")
PY
# shellcheck disable=SC2086
"$python" -m pytest -q -p no:cacheprovider \
  ${TESTS:-$(echo tests/torch/test_{matmul_semantics,bad_input,autograd,compile}.py \
    tests/kernels/test_{strides,transpose,add,gemm_values}.py tests/cuda/test_cuda.py)} "$@"
