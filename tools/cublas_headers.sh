#!/usr/bin/env bash
# Prints a folder with the headers of cuBLAS for the rows of csrc/library, if the CUDA toolkit here has none. They are
# those of the package nvidia-cublas, which pip downloads once.
#
#   PYTHON   interpreter whose pip downloads it (default: .venv's)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
cublas=$PWD/build/cublas
if [[ ! -f $cublas/nvidia/cu13/include/cublasLt.h ]]; then
  mkdir -p "$cublas"
  "$python" -m pip download --quiet --no-deps --dest "$cublas" nvidia-cublas==13.0.2.14 >&2
  "$python" - "$cublas" <<'PY'
import sys, zipfile
from pathlib import Path
folder = Path(sys.argv[1])
for wheel in folder.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if "/include/" in name])
    wheel.unlink()
PY
fi
echo "$cublas/nvidia/cu13/include"
