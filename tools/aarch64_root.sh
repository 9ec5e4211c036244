#!/usr/bin/env bash
# Makes a folder for building and trying a wheel for aarch64 on a machine of another architecture. It holds Python and
# the C and C++ libraries of Debian 12 for arm64, unpacked and not installed. This system is not changed.
#
#   tools/aarch64_root.sh [FOLDER]      default: build/aarch64-root; an existing one is kept
#
# Needs root's rights (debootstrap) and a mirror of Debian. On Debian: apt-get install debootstrap
#
#   MIRROR   default: http://deb.debian.org/debian
set -euo pipefail
cd "$(dirname "$0")/.."
root=${1:-build/aarch64-root}
if [ -x "$root/usr/bin/python3.11" ]; then exit 0; fi
mkdir -p "$root"
# --foreign: packages are downloaded, and none of their programs runs.
debootstrap --foreign --arch=arm64 --variant=minbase --include=python3.11,libpython3.11-dev,libstdc++6,libgomp1,libnuma1 bookworm \
  "$root" "${MIRROR:-http://deb.debian.org/debian}"
for package in "$root"/var/cache/apt/archives/*.deb; do dpkg -x "$package" "$root"; done
