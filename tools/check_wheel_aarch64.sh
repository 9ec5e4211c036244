#!/usr/bin/env bash
# Uses a wheel for aarch64 on a machine of another architecture, under qemu's user-mode emulation. Does the same as
# tools/check_wheels.sh, except for pip and the command line, and also checks that level 6 uses bfmmla and smmla. Python
# and the C library come from tools/aarch64_root.sh. pip downloads torch and its requirements, 2.9 GB, because the wheels
# on PyPI are for CUDA and do not load without its libraries. Shows that results are right, but nothing about speed. On Debian: apt-get install qemu-user-static
#
#   tools/check_wheel_aarch64.sh dist/fastgemm-*_aarch64.whl
#
#   PYTHON     interpreter with pip (default: python3)
#   ROOT       default: build/aarch64-root; torch stays in it
#   TORCH      default: torch==2.13.0
#   EMULATOR   default: qemu-aarch64-static
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
root=$(realpath "${ROOT:-$here/build/aarch64-root}")
site=$root/usr/local/lib/python3.11/dist-packages
emulator=$(command -v "${EMULATOR:-qemu-aarch64-static}")
wheel=$(realpath "$1")
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

install() {
  local platforms=(--platform manylinux2014_aarch64) glibc
  for glibc in $(seq 17 36); do platforms+=(--platform "manylinux_2_${glibc}_aarch64"); done
  "${PYTHON:-python3}" -m pip install --quiet --no-compile --upgrade --target "$site" "${platforms[@]}" --python-version 3.11 \
    --only-binary :all: "$@"
}

# torch reads the processor's description. Without these files it reads this machine's, and crashes on other processors.
describe_processor() {
  local core
  mkdir -p "$root/proc"
  : >"$root/proc/cpuinfo"
  for core in $(seq 0 $(($(nproc) - 1))); do
    mkdir -p "$root/sys/devices/system/cpu/cpu$core/regs/identification"
    echo 0x00000000411fd401 >"$root/sys/devices/system/cpu/cpu$core/regs/identification/midr_el1"
    printf '%s\t: %s\n' processor "$core" Features 'fp asimd aes crc32 atomics fphp asimdhp asimdrdm asimddp i8mm bf16' \
      'CPU implementer' 0x41 'CPU architecture' 8 'CPU variant' 0x1 'CPU part' 0xd40 'CPU revision' 1 >>"$root/proc/cpuinfo"
    echo >>"$root/proc/cpuinfo"
  done
}

step "torch"
if ! [ -d "$site/torch" ]; then install "${TORCH:-torch==2.13.0}" numpy; fi
rm -rf "$site"/fastgemm "$site"/fastgemm-*.dist-info
started=$(date +%s.%N)
install --no-deps "$wheel"
installed=$(awk -v a="$started" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')
describe_processor

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A program that starts its own interpreter again gets the emulator, too.
printf '#!/bin/sh\nexec "%s" -cpu max,sve=off,sme=off -0 "%s" -L "%s" "%s" "$@"\n' "$emulator" "$work/python" "$root" \
  "$root/usr/bin/python3.11" >"$work/python"
chmod +x "$work/python"
cd "$work"
try() { PYTHONHOME=$root/usr PYTHONDONTWRITEBYTECODE=1 PATH=$work "$work/python" -W ignore "$@"; }

step "level 6"
try - <<'PY'
import fastgemm, torch
from fastgemm import _introspect
print(fastgemm.build_info()["cpu_features"])
for dtype, out, kernel in ("bfloat16", "bfloat16", "mmla_bf16"), ("int8", "int32", "mmla_int8"):
    a, b = torch.randint(-100, 101, (2, 70, 70)).to(getattr(torch, dtype))
    exact = (a.double() @ b.double()).to(getattr(torch, out))
    for choice in {"level": 6}, {"kernel": kernel}, {"kernel": "pipelined"}, {"invariant": True}:
        torch.testing.assert_close(fastgemm.matmul(a, b, **choice), exact)
    names = [name for name, _ in _introspect.cpu_predictions((dtype, "ieee", 1, 70, 70, 70, False, False), 1)]
    assert names.index(kernel) < names.index("pipelined"), names
    print(kernel, "is right, and the first of", *names)
PY
step "every level"
try "$here/tools/use_wheel.py" "$installed"
step "done"
