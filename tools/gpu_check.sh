#!/usr/bin/env bash
# Runs everything that needs a GPU: the build, the tests, every kernel under compute-sanitizer, and the benchmarks.
# Each stage takes less than 10 minutes on an H200 with 16 cores and leaves <stage>.log.
#
#   tools/gpu_check.sh [build|test|sanitize|bench|counters|tune ...]     default: the first four
#
#   OUT              folder of the results (default: build/gpu); the bench stage writes results/<GPU>/<preset>.json
#   PORTABLE         1: builds the code for GPUs other than Hopper for the GPU here, even if it is a Hopper, which then
#                    uses neither wgmma nor TMA; the other stages run that build (benchmarks/presets/portable.py times both)
#   PYTHON           interpreter of an environment with torch for CUDA (default: python3)
#   PYTEST           more arguments for the tests, such as "-x -k 'not cuda'"
#   WORKERS          processes that share the tests if pytest-xdist is installed (default: 4)
#   SANITIZERS       default: memcheck racecheck initcheck
#   SANITIZE         kernels to run under them (default: all), SANITIZE_SECONDS for each tool (default: 150)
#   BENCH            arguments of benchmarks/run.py, such as "weak_spots linear" (default: everything)
#   TUNE             more arguments for benchmarks/fits/make_static_tables.py, such as "--op gemm --dtype float32"
#   FASTGEMM_COMMIT  commit to store with the results if there is no git history
#
# Exits with 0 when every stage passed, else with 1 after the last stage. Downloads nothing.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=$(mkdir -p "${OUT:-build/gpu}" && cd "${OUT:-build/gpu}" && pwd)
PYTHON=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 OUT

stage_build() {
  if [ "${PORTABLE:-0}" = 1 ]; then
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .) || return 1
    export FASTGEMM_CUDA_ARCHS=$capability-real
    echo "portable code for $FASTGEMM_CUDA_ARCHS"
  fi
  MAX_JOBS=${MAX_JOBS:-$(nproc)} FASTGEMM_CUDA=1 timeout 470 "$PYTHON" -m pip install --no-build-isolation \
    --no-deps --no-index --disable-pip-version-check --editable . && "$PYTHON" -m fastgemm info
}

stage_test() {
  local workers=${WORKERS:-4}
  local -a more
  eval "more=(${PYTEST:-})"
  if "$PYTHON" -c "import xdist" 2>/dev/null; then
    more+=(-n "$workers")
    export OMP_NUM_THREADS=$(($(nproc) > workers ? $(nproc) / workers : 1))
  fi
  timeout --signal INT --kill-after 10 460 "$PYTHON" -m pytest -q --durations 15 "${more[@]}"
}

# racecheck may report wgmma_specialized where one lane arrives at a barrier for the reads of its whole warp. __syncwarp()
# orders these reads, but the tool does not see this if copies by address fill the stage. It sees no copies by tensor maps
# at all, not even their races (compute-sanitizer 2025.3.1, driver 580.159, an H200).
# Without torch's caching allocator every tensor is a separate allocation, so that memcheck sees its bounds.
stage_sanitize() {
  local tool status=0
  for tool in ${SANITIZERS:-memcheck racecheck initcheck}; do
    SANITIZER=$tool PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout "${SANITIZE_SECONDS:-150}" \
      compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
      "$PYTHON" tools/sanitize_cases.py ${SANITIZE:-} >"$OUT/$tool.txt" 2>&1 || status=1
    echo "== $tool"
    # The first findings, without host stacks, and the last lines.
    grep '^=========' "$OUT/$tool.txt" | grep -v 'Host Frame\|Saved host' | head -n 40
    tail -n 4 "$OUT/$tool.txt" # the last line is "N cases" if the run was complete
  done
  return $status
}

# Measures the figures of the pages in less than ten minutes; with BENCH only some presets.
stage_bench() { "$PYTHON" benchmarks/run.py --device cuda --out "$OUT/results" ${BENCH:-}; }

# Compares the simulator's counters with those of the GPU.
stage_counters() { "$PYTHON" tools/ncu_check.py --json "$OUT/counters.json"; }

# Measures which kernel is fastest, for csrc/core/static_tables.cpp.
stage_tune() {
  timeout 470 "$PYTHON" benchmarks/fits/make_static_tables.py --device cuda --no-cpp --json "$OUT/tuning.json" ${TUNE:-}
}

failed=()
for stage in ${*:-build test sanitize bench}; do
  if ! declare -F "stage_$stage" >/dev/null; then
    echo "gpu_check: no stage $stage; known: build test sanitize bench counters tune" >&2
    exit 2
  fi
  SECONDS=0
  "stage_$stage" 2>&1 | tee "$OUT/$stage.log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$stage")
  echo "== stage $stage took $SECONDS s" | tee -a "$OUT/$stage.log"
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "gpu_check: failed: ${failed[*]}" >&2
  exit 1
fi
