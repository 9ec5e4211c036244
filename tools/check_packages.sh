#!/usr/bin/env bash
# Builds the sdist and, from it, a wheel; installs the wheel into a fresh environment beside the torch of this one
# and runs a product there.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip install --quiet build
"$python" -m build --no-isolation --sdist --outdir "$work" . >/dev/null
FASTGEMM_CUDA=0 "$python" -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir "$work" "$work"/fastgemm-*.tar.gz
ls -l "$work"

# The wheel alone in a folder of its own; torch and the other requirements come from the environment's packages.
"$python" -m pip install --quiet --no-deps --target "$work/site" "$work"/fastgemm-*.whl
cd "$work" && PYTHONPATH="$work/site" "$python" - <<'PY'
import torch, fastgemm
assert "site" in fastgemm.__file__, fastgemm.__file__
a, b = torch.randn(65, 33), torch.randn(33, 17)
for level in range(1, 8):
    torch.testing.assert_close(fastgemm.matmul(a, b, level=level), a @ b)
print("the wheel works:", fastgemm.__version__, fastgemm.__file__)
PY
