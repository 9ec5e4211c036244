#!/usr/bin/env bash
# For a release: installs fastgemm with one version of torch after the other and uses it: import, ops, patches and their
# cost, errors, gradients, torch.compile. .ci/run tests this and more, with one torch.
#
#   tools/check_torches.sh [VERSION...]     such as 2.14 (default: all that tools/torch_headers.py lists)
#
#   WHEEL         the wheel to install (default: this source tree, which is built for each torch)
#   PYTHON        interpreter to make the environments with (default: python3)
#   ENVIRONMENTS  where to make them, one per version, and to keep them for the next time (default: a
#                 temporary folder). A torch of PyPI takes 3 to 5 GB
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
environments=$(realpath -m "${ENVIRONMENTS:-$work}")
from=$(realpath "${WHEEL:-$here}")
if [ $# -eq 0 ]; then
  list="import torch_headers as t; print(*map(t.minor, t.TORCHES))"
  # The words are versions.
  # shellcheck disable=SC2046
  set -- $(cd "$here/tools" && "${PYTHON:-python3}" -c "$list")
fi

cd "$work"
for version in "$@"; do
  python=$environments/$version/bin/python
  if ! "$python" -c "import torch; assert torch.__version__.startswith('$version.')" 2>/dev/null; then
    "${PYTHON:-python3}" -m venv --clear "$environments/$version"
    "$python" -m pip install --quiet "torch==$version.*" numpy
  fi
  "$python" -m pip install --quiet --force-reinstall --no-deps "$from"
  "$python" -W ignore::FutureWarning "$here/tools/use_torch.py"
  [ -n "${ENVIRONMENTS:-}" ] || rm -rf "${environments:?}/$version"
done
