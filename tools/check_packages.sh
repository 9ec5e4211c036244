#!/usr/bin/env bash
# Builds the sdist and, from it, a wheel without build isolation, and checks what they hold. Then, in a fresh
# environment that has torch and nothing else: installs the wheel, where no compiler can be found, and uses it; and
# installs the sdist with pip's defaults, which must not fetch another torch.
# Both build in one unpacked copy of the sdist, where the second finds the kernels compiled: they need no torch.
#
#   PYTHON   interpreter that builds (default: .venv's)
#   TORCH    what to install as torch in the fresh environment (default: torch==2.13.0)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

step "sdist and wheel"
"$python" -m pip install --quiet build
"$python" -m build --no-isolation --sdist --outdir "$work" . >/dev/null
mkdir "$work/source" && tar -xf "$work"/fastgemm-*.tar.gz -C "$work/source" --strip-components 1
export FASTGEMM_CUDA=0
if [[ -n ${CCACHE_BASEDIR:-} ]]; then export CCACHE_BASEDIR=$work/source; fi  # paths there as in the clone
"$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$work" "$work/source"
ls -l "$work"
"$python" tools/check_distributions.py "$work"/fastgemm-*.tar.gz "$work"/fastgemm-*.whl

step "the wheel, without a compiler"
"$python" -m venv "$work/venv"
fresh=$work/venv/bin
"$fresh/python" -m pip install --quiet "${TORCH:-torch==2.13.0}" numpy
cd "$work"
PATH=$fresh "$fresh/python" -m pip install --quiet "$work"/fastgemm-*.whl
PATH=$fresh "$fresh/python" - <<'PY'
import shutil, torch, fastgemm
assert not any(map(shutil.which, ("cc", "c++", "gcc", "g++", "clang", "nvcc", "cmake", "ninja")))
assert "venv" in fastgemm.__file__, fastgemm.__file__
a, b = torch.randn(65, 33), torch.randn(33, 17)
for level in range(1, 8):
    torch.testing.assert_close(fastgemm.matmul(a, b, level=level), a @ b)
with fastgemm.patch(level=5) as routed:
    a @ b
assert routed.ops == {"mm": 1}, routed
info = fastgemm.build_info()
here, built_with = (".".join(info[name].split(".")[:2]) for name in ("torch", "torch_at_build"))
torches = info["override_torches"].split()
library = f"libfastgemm_override_{here.replace('.', '_')}.so" if here in torches else "none: "
assert built_with in torches and info["override_library"].startswith(library), info
print("the wheel works:", fastgemm.__version__, fastgemm.__file__)
PY
"$fresh/fastgemm" info | grep 'override library'
"$fresh/fastgemm" explain transpose --level 3 --shape 64 64 | grep -F 'staged[x][j]'  # with the source
"$fresh/python" -m pip uninstall --quiet --yes fastgemm

step "the sdist, with pip's defaults"
"$fresh/python" -m pip install "$work/source" | tee "$work/pip.log" | tail -n 1
if grep -E '(Downloading|Collecting) torch\b' "$work/pip.log"; then
  echo "check_packages: pip fetched a torch although the environment has one" >&2
  exit 1
fi
"$fresh/python" -c "import torch, fastgemm; assert fastgemm.matmul(torch.eye(3), torch.eye(3)).trace() == 3"
step "pip install into an environment with torch works"
