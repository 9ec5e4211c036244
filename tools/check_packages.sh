#!/usr/bin/env bash
# Builds the sdist and, from it, a wheel without build isolation, and checks what they hold. Then, in a fresh
# environment that has torch and nothing else: installs the wheel, where no compiler can be found, and uses it
# (tools/check_wheels.sh); then, in its place, the sdist with pip's defaults, which must not fetch another torch.
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
PYTHON=$python ENVIRONMENT=$work/venv tools/check_wheels.sh "$work"/fastgemm-*.whl

step "the sdist, with pip's defaults"
fresh=$work/venv/bin
"$fresh/python" -m pip uninstall --quiet --yes fastgemm
cd "$work"
"$fresh/python" -m pip install "$work/source" | tee "$work/pip.log" | tail -n 1
if grep -E '(Downloading|Collecting) torch\b' "$work/pip.log"; then
  echo "check_packages: pip fetched a torch although the environment has one" >&2
  exit 1
fi
"$fresh/python" -c "import torch, fastgemm; assert fastgemm.matmul(torch.eye(3), torch.eye(3)).trace() == 3"
step "pip install into an environment with torch works"
