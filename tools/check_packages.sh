#!/usr/bin/env bash
# Builds the sdist and, from it, a wheel as `pip install` does: in a separate environment, with the torch that is
# installed here, and without downloading another. Checks the contents of both. Then installs the wheel into a fresh
# environment with torch only and without a compiler, and uses it (tools/check_wheels.sh).
#
#   PYTHON   interpreter that builds, with torch (default: .venv's)
#   TORCH    what to install as torch in the fresh environment (default: torch==2.13.0)
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

step "sdist"
"$python" -m pip install --quiet build
"$python" -m build --no-isolation --sdist --outdir "$work" . >/dev/null
mkdir "$work/source" && tar -xf "$work"/fastgemm-*.tar.gz -C "$work/source" --strip-components 1

step "wheel, with pip's defaults"
export FASTGEMM_CUDA=0
if [[ -n ${CCACHE_BASEDIR:-} ]]; then export CCACHE_BASEDIR=$work/source/csrc:$work/source/build; fi  # as in the clone
"$python" -m pip wheel --verbose --no-deps --wheel-dir "$work" "$work/source" >"$work/pip.log" 2>&1 ||
  { cat "$work/pip.log"; exit 1; }
if grep -E '(Downloading|Collecting) torch\b' "$work/pip.log"; then
  echo "check_packages: pip fetched a torch although the environment has one" >&2
  exit 1
fi
ls -l "$work"
"$python" tools/check_distributions.py "$work"/fastgemm-*.tar.gz "$work"/fastgemm-*.whl

step "the wheel, without a compiler"
PYTHON=$python tools/check_wheels.sh "$work"/fastgemm-*.whl
