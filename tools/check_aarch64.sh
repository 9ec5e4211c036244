#!/usr/bin/env bash
# The CPU kernels on aarch64 (Grace, Graviton), from a machine of another architecture: compiles csrc/core and csrc/cpu
# with a cross compiler and runs every row of the kernel table against float64 under qemu's user-mode emulation. Shows
# that results are right, and nothing about speed. On Debian: apt-get install g++-aarch64-linux-gnu qemu-user
#
#   CXX        default: aarch64-linux-gnu-g++
#   EMULATOR   default: qemu-aarch64 -L /usr/aarch64-linux-gnu
set -euo pipefail
cd "$(dirname "$0")/.."
compiler=${CXX:-aarch64-linux-gnu-g++}
read -r -a emulator <<<"${EMULATOR:-qemu-aarch64 -L /usr/aarch64-linux-gnu}"
for tool in "$compiler" "${emulator[0]}" cmake; do
  if ! command -v "$tool" >/dev/null; then
    echo "check_aarch64: $tool is not installed" >&2
    exit 1
  fi
done
step() { printf -- '-- %s (%s s)\n' "$1" "$SECONDS"; }

build=$PWD/build/aarch64
step "compile"
cmake -S . -B "$build" -G Ninja -DFASTGEMM_TORCH=OFF -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CROSSCOMPILING_EMULATOR="$(IFS=';' && echo "${emulator[*]}")" >/dev/null
cmake --build "$build" --parallel "$(nproc)" --target kernels_test static_tables_test
step "run"
ctest --test-dir "$build" --tests-regex '^(kernels_baseline|static_tables)$' --output-on-failure
step "done"
