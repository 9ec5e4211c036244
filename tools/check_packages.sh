#!/usr/bin/env bash
# Builds the sdist and, from it, a wheel without build isolation, which must run beside this environment's torch;
# then installs the sdist with pip's defaults into a fresh environment that has torch, which must not fetch another.
# Both build in one unpacked copy of the sdist, where the second finds the kernels compiled: they need no torch.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip install --quiet build
"$python" -m build --no-isolation --sdist --outdir "$work" . >/dev/null
mkdir "$work/source" && tar -xf "$work"/fastgemm-*.tar.gz -C "$work/source" --strip-components 1
export FASTGEMM_CUDA=0
"$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$work" "$work/source"
ls -l "$work"

# The wheel alone in a folder of its own; torch and the other requirements come from the environment's packages.
"$python" -m pip install --quiet --no-deps --target "$work/site" "$work"/fastgemm-*.whl
cd "$work" && PYTHONPATH="$work/site" "$python" - <<'PY'
import torch, fastgemm
from pathlib import Path
package = Path(fastgemm.__file__).parent
assert "site" in package.parts, package
for source in ("cpu/gemm/level1_naive.cpp", "cuda/gemm/level1_naive.cu"):  # `fastgemm explain`, notebooks
    assert (package / "csrc" / source).is_file(), source
a, b = torch.randn(65, 33), torch.randn(33, 17)
for level in range(1, 8):
    torch.testing.assert_close(fastgemm.matmul(a, b, level=level), a @ b)
print("the wheel works:", fastgemm.__version__, fastgemm.__file__)
PY

"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet "${TORCH:-torch==2.13.0}" numpy
"$work/venv/bin/python" -m pip install "$work/source" | tee "$work/pip.log" | tail -n 1
if grep -E '(Downloading|Collecting) torch\b' "$work/pip.log"; then
  echo "check_packages: pip fetched a torch although the environment has one" >&2
  exit 1
fi
"$work/venv/bin/fastgemm" info >/dev/null
"$work/venv/bin/fastgemm" explain transpose --level 3 --shape 64 64 | grep -F 'staged[x][j]'  # with the source
"$work/venv/bin/python" -c "import torch, fastgemm; assert fastgemm.matmul(torch.eye(3), torch.eye(3)).trace() == 3"
echo "pip install into an environment with torch works"
