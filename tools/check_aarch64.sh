#!/usr/bin/env bash
# Checks the CPU kernels for aarch64 (Grace, Graviton) on a machine of another architecture. Compiles csrc/core and
# csrc/cpu with a cross compiler, and runs every row of the kernel table against float64 under qemu's user-mode
# emulation: once as on a processor without bfmmla and smmla (kernels_baseline), once with all units of the emulated
# processor (kernels_native). Shows that results are right, but nothing about speed. On Debian: apt-get install g++-aarch64-linux-gnu qemu-user
#
#   CXX        default: aarch64-linux-gnu-g++
#   EMULATOR   default: qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu. qemu has bfmmla and smmla since 6.1
#   JOBS       parallel compile jobs (default: as many as cores)
set -euo pipefail
cd "$(dirname "$0")/.."
compiler=${CXX:-aarch64-linux-gnu-g++}
read -r -a emulator <<<"${EMULATOR:-qemu-aarch64 -cpu max -L /usr/aarch64-linux-gnu}"
for tool in "$compiler" "${emulator[0]}" cmake; do
  if ! command -v "$tool" >/dev/null; then
    echo "check_aarch64: $tool is not installed" >&2
    exit 1
  fi
done
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

build=$PWD/build/aarch64
step "compile"
CXX=$compiler cmake -S . -B "$build" -G Ninja -DFASTGEMM_TORCH=OFF -DCMAKE_TOOLCHAIN_FILE="$PWD/tools/aarch64.cmake" \
  -DCMAKE_CROSSCOMPILING_EMULATOR="$(IFS=';' && echo "${emulator[*]}")" >/dev/null
cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target kernels_test static_tables_test
step "run"
ctest --test-dir "$build" --tests-regex '^(kernels_baseline|kernels_native|static_tables)$' --output-on-failure |
  tee "$build/said"
if grep -q 'kernels_native .*Skipped' "$build/said"; then
  echo "check_aarch64: '${emulator[*]}' has neither bfmmla nor smmla, so their rows were not run" >&2
  exit 1
fi
step "done"
