#!/usr/bin/env bash
# Builds the library with its CUDA sources and imports the result, on a machine that needs neither a GPU nor a
# driver. Fails if ptxas warns that wgmma was serialized or setmaxnreg ignored. tools/check_sass.py then checks the
# code of each kernel.
#
#   KERNEL                compiles only the file of this kernel, in half a minute, and imports nothing
#   FASTGEMM_CUDA_ARCHS   default: Hopper, and the oldest and the newest of the other GPUs
#   FASTGEMM_CUDA_TWINS   OFF leaves out kernels for float16, unsigned bytes and e5m2, which are like those for bfloat16,
#                         signed bytes and e4m3, kernels for wgmma whose operands lie in different order, narrow
#                         tiles of triangles, and one architecture of kernels without code of their own for Hopper
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
build=$PWD/build/cuda log=$PWD/build/cuda.log
objects=()
if [[ -n ${KERNEL:-} ]]; then
  mapfile -t objects < <(grep -rlE --include='*.cu' "^void (gemm|transpose|add)_$KERNEL\(const" csrc/cuda | sort)
  if [[ ${#objects[@]} = 0 ]]; then
    echo "compile_cuda: no file below csrc/cuda has a launcher gemm_$KERNEL, transpose_$KERNEL or add_$KERNEL" >&2
    exit 1
  fi
  objects=("${objects[@]/#/CMakeFiles/fastgemm_cuda.dir/}")
  objects=("${objects[@]/%/.o}")
fi
if [[ ! -x $nvcc ]]; then
  echo "compile_cuda: there is no nvcc; it comes with the CUDA toolkit, 13.0 or later, and needs no GPU" >&2
  exit 1
fi
mkdir -p "$build"

# -O0 is for host code, which is only loaded here. The code for GPUs is the same (ptxas has its own option), and a file
# takes up to a third less time.
"$(dirname "$python")/cmake" -S . -B "$build" -G Ninja -DFASTGEMM_CUDA=ON -DFASTGEMM_SIMT=OFF -DFASTGEMM_OVERRIDE=OFF \
  -DCMAKE_CUDA_COMPILER="$nvcc" -DCMAKE_CUDA_FLAGS_RELEASE="-O0 -DNDEBUG" -DFASTGEMM_CUDA_COMPRESSION=none \
  -DFASTGEMM_CUDA_ARCHS="${FASTGEMM_CUDA_ARCHS:-80-real;90a-real;120-real}" -DFASTGEMM_CUDA_TWINS="${FASTGEMM_CUDA_TWINS:-ON}" \
  -DCMAKE_CUDA_FLAGS="-Xptxas=-v" -DPython_EXECUTABLE="$python" \
  -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" -DCMAKE_INSTALL_PREFIX="$build/package/fastgemm" \
  -DFASTGEMM_CUBLAS_INCLUDE="$([[ -n ${KERNEL:-} ]] || PYTHON=$python tools/cublas_headers.sh)" \
  -DFASTGEMM_TORCH_DIR="$("$python" -c 'import importlib.util as u; print(u.find_spec("torch").submodule_search_locations[0])')" \
  >/dev/null
"$(dirname "$python")/cmake" --build "$build" --parallel "$(nproc)" ${objects:+--target "${objects[@]}"} 2>&1 | tee "$log"
if grep -E 'C75(08|10|18)|wgmma.* are serialized' "$log"; then
  echo "compile_cuda: ptxas serialized or ignored the instructions that the lines above name" >&2
  exit 1
fi
if [[ -n ${KERNEL:-} ]]; then exit; fi

rm -rf "$build/package" && mkdir "$build/package" && cp -r python/fastgemm "$build/package/"
rm -f "$build"/package/fastgemm/*.so  # an editable install leaves these
"$(dirname "$python")/cmake" --install "$build" >/dev/null

PYTHONPATH="$build/package" "$python" tools/check_cuda_messages.py
cd "$build" && PYTHONPATH="$build/package" "$python" - <<'PY'
import fastgemm
info = fastgemm.build_info()
assert info["cuda_archs"], info
print("CUDA build loads without a driver; architectures:", info["cuda_archs"], "| GPU:", info["cuda_device"])
PY
