#!/usr/bin/env bash
# Installs each wheel into an environment with torch only, without a compiler and nvcc, and uses it: every level, patches
# and their cost, the simulator, the messages for a missing package of an extra, and then the command line. Prints
# seconds and megabytes.
#
#   tools/check_wheels.sh dist/fastgemm-*.whl
#
#   PYTHON   interpreter that makes the environments (default: python3); any that the wheels support
#   TORCH    what to install as torch (default: torch==2.13.0)
#   SITE     1: uses the torch of PYTHON's own environment and downloads nothing, for a machine without a network.
#            The command line is then tried if its packages are installed
#   TESTS    tests of the repository to run on the wheel as well, such as "tests/torch/override/test_patch.py"
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

wheels=()
for wheel in "$@"; do wheels+=("$(realpath "$wheel")"); done
for wheel in "${wheels[@]}"; do
  step "$(basename "$wheel"): $(stat -c %s "$wheel" | awk '{ printf "%.1f MB", $1 / 1e6 }')"
  environment=$work/venv more=()
  fresh=$environment/bin
  rm -rf "$environment"
  if [ "${SITE:-0}" = 1 ]; then
    # A .pth file adds the packages of PYTHON's environment; --system-site-packages does not find those of a venv.
    "$python" -m venv "$environment"
    "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
      >"$("$fresh/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/site_of_python.pth"
    more=(--no-deps --no-index)
  else
    "$python" -m venv "$environment"
    # No bytecode: the environment is temporary and imports only a part of its packages.
    "$fresh/python" -m pip install --quiet --no-compile "${TORCH:-torch==2.13.0}"
  fi
  cd "$work"
  started=$(date +%s.%N)
  PATH=$fresh "$fresh/python" -m pip install --quiet "${more[@]}" "$wheel"
  PATH=$fresh "$fresh/python" -W ignore "$here/tools/use_wheel.py" "$(awk -v a="$started" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')"
  if [ "${SITE:-0}" != 1 ]; then
    step "with the command line"
    PATH=$fresh "$fresh/python" -m pip install --quiet "${wheel}[cli]"
  fi
  if "$fresh/python" -c 'import click, rich' 2>/dev/null; then
    PATH=$fresh "$fresh/fastgemm" info | grep 'override library'
    # explain shows source lines only if addr2line is installed, and not every environment has it.
    if command -v addr2line >/dev/null; then
      "$fresh/fastgemm" explain transpose --level 3 --shape 64 64 | grep -F 'staged[x][j]'
    fi
  fi
  if [ -n "${TESTS:-}" ]; then
    step "tests"
    [ "${SITE:-0}" = 1 ] || "$fresh/python" -m pip install --quiet "${wheel}[test]"
    # The words are paths.
    # shellcheck disable=SC2086
    (cd "$here" && PATH=$fresh "$fresh/python" -m pytest -q -p no:cacheprovider $TESTS)
  fi
done
step "done"
