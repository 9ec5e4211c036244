#!/usr/bin/env bash
# One binary, two versions of torch: runs the tests of the ops with a libfastgemm.so that was built against another
# torch than the one here. Copy the library to a machine with the other torch, and run there, in a checkout of the
# commit that it was built from:
#
#   tools/check_two_versions.sh path/to/libfastgemm.so [more arguments for pytest]
#
# Libraries of overrides (make wheel builds one for each version) are taken from beside it; without that of the other
# torch, patches are modes there.
#
#   PYTHON   interpreter of an environment with the other torch, pybind11 and pytest (default: python3)
#   TESTS    what to run (default: the ops, their errors, gradients and opcheck, on every device that is here)
#
# Only the Python module beside it is compiled (a second's work: it needs neither torch's headers nor CUDA), since
# Python's own interface differs from version to version.
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
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
# The words of pybind11's flags are meant to be split.
# shellcheck disable=SC2046
"${CXX:-c++}" -O1 -std=c++20 -shared -fPIC -fvisibility=hidden -Icsrc $("$python" -m pybind11 --includes) \
  csrc/python/module.cpp -o "$work/fastgemm/_introspect$suffix" -L"$work/fastgemm" -lfastgemm -Wl,-rpath,'$ORIGIN'

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
