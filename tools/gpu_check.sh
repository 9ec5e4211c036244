#!/usr/bin/env bash
# What needs a GPU: builds the package, runs the tests, every kernel under compute-sanitizer, and the benchmarks.
# Each stage takes less than 8 minutes on an H200 with 16 cores and leaves <stage>.json and <stage>.log.
#
#   tools/gpu_check.sh [build|test|sanitize|bench|tune ...]     default: the first four
#
#   OUT              folder of the results (default: build/gpu); the bench stage writes a JSON for each benchmark
#   PORTABLE         1: builds what every GPU but Hopper runs for the GPU here, a Hopper too, which then has neither
#                    wgmma nor TMA; the other stages run that build (tools/portable_products.py times both)
#   PYTHON           interpreter of an environment with torch for CUDA (default: python3)
#   PYTEST           more arguments for the tests, such as "-x -k 'not cuda'"
#   WORKERS          processes that share the tests where pytest-xdist is installed (default: 4)
#   SANITIZERS       default: memcheck racecheck initcheck
#   SANITIZE         kernels to run under them (default: all), SANITIZE_SECONDS for each tool (default: 150)
#   BENCH            any of ladder reference tensor_cores weak_spots random60 host accuracy peers sizes sweep overhead
#                    symmetric linear newton_schulz invariant complex residues models invariant_models transformer
#                    transformer_wide first_product counters (default: the first seven). All together take longer than
#                    the device is lent for one command. SETUP: seconds of compilation and autotuning a peer
#   TUNE             more arguments for benchmarks/fits/make_static_tables.py, such as "--op gemm --dtype float32"
#   FASTGEMM_COMMIT  commit to store with the results where there is no git history
#
# Exits with 0 when every stage passed, else with 1 after the last stage. Downloads nothing.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=$(mkdir -p "${OUT:-build/gpu}" && cd "${OUT:-build/gpu}" && pwd)
PYTHON=${PYTHON:-python3}
export PYTHONUNBUFFERED=1 OUT

report() { "$PYTHON" tools/gpu_report.py "$@"; }

stage_build() {
  if [ "${PORTABLE:-0}" = 1 ]; then
    local capability
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .) || return 1
    export FASTGEMM_CUDA_ARCHS=$capability-real
    echo "portable code for $FASTGEMM_CUDA_ARCHS"
  fi
  MAX_JOBS=${MAX_JOBS:-$(nproc)} FASTGEMM_CUDA=1 timeout 470 "$PYTHON" -m pip install --no-build-isolation \
    --no-deps --no-index --disable-pip-version-check --editable . && report build "$OUT/build.json"
}

stage_test() {
  local xml=$OUT/test.xml workers=${WORKERS:-4} status
  local -a more
  eval "more=(${PYTEST:-})"
  if "$PYTHON" -c "import xdist" 2>/dev/null; then
    more+=(-n "$workers")
    export OMP_NUM_THREADS=$(($(nproc) > workers ? $(nproc) / workers : 1))
  fi
  timeout --signal INT --kill-after 10 460 "$PYTHON" -m pytest -q --durations 15 --junit-xml "$xml" "${more[@]}"
  status=$?
  report test "$OUT/test.json" "$xml"
  rm -f "$xml"
  return $status
}

# racecheck can name wgmma_specialized where one lane arrives at a barrier for the reads of its warp, which is ordered
# by __syncwarp(): tests/cuda/racecheck_limits.cu, which is built and run by hand, shows that the tool does not follow
# that order where copies by address fill the stage; of copies by tensor maps it saw nothing there.
# Without torch's caching allocator every tensor is an allocation of its own, so that memcheck sees its bounds.
stage_sanitize() {
  local tool status=0
  local -a found=()
  for tool in ${SANITIZERS:-memcheck racecheck initcheck}; do
    SANITIZER=$tool PYTORCH_NO_CUDA_MEMORY_CACHING=1 timeout "${SANITIZE_SECONDS:-150}" \
      compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 20 \
      "$PYTHON" tools/sanitize_cases.py ${SANITIZE:-} >"$OUT/$tool.txt" 2>&1
    found+=("$tool=$?=$OUT/$tool.txt")
    [[ ${found[-1]} == "$tool=0="* ]] || status=1
    echo "== $tool"
    # The first findings without their stacks on the host, then the end.
    grep '^=========' "$OUT/$tool.txt" | grep -v 'Host Frame\|Saved host' | head -n 40
    tail -n 4 "$OUT/$tool.txt"
  done
  report sanitize "$OUT/sanitize.json" "${found[@]}"
  rm -f "${found[@]##*=}"
  return $status
}

fastgemm() { "$PYTHON" -m fastgemm "$@"; }

stage_bench() {
  local name status=0
  for name in ${BENCH:-ladder reference tensor_cores weak_spots random60 host accuracy}; do
    echo "== $name ($SECONDS s)"
    case $name in
      ladder) fastgemm ladder --device cuda --no-files --json "$OUT/ladder.json" ;;
      reference) fastgemm bench --device cuda --preset reference --json "$OUT/reference.json" ;;
      tensor_cores) fastgemm bench --device cuda --preset tensor_cores --budget 0.2 --json "$OUT/tensor_cores.json" ;;
      weak_spots) fastgemm bench --device cuda --preset weak_spots --budget 0.1 --json "$OUT/weak_spots.json" ;;
      random60) fastgemm bench --device cuda --preset random60 --json "$OUT/random60.json" ;;
      host) fastgemm bench --device cuda --host-time --json "$OUT/host.json" ;;
      overhead) fastgemm bench --device cuda --overhead --json "$OUT/overhead.json" ;;
      accuracy) fastgemm bench --device cuda --accuracy --json "$OUT/accuracy.json" ;;
      peers) fastgemm bench --device cuda --preset peers ${SETUP:+--setup "$SETUP"} --json "$OUT/peers.json" ;;
      sizes) fastgemm bench --device cuda --preset sizes --json "$OUT/sizes.json" ;;
      symmetric) "$PYTHON" tools/symmetric_products.py --json "$OUT/symmetric_products.json" ;;
      invariant) "$PYTHON" tools/invariant_products.py --json "$OUT/invariant_products.json" ;;
      linear) "$PYTHON" tools/fused_linear.py --json "$OUT/fused_linear.json" ;;
      newton_schulz) "$PYTHON" examples/newton_schulz.py --json "$OUT/newton_schulz.json" ;;
      complex) "$PYTHON" tools/complex_products.py --json "$OUT/complex_products.json" ;;
      residues) "$PYTHON" tools/residue_products.py --json "$OUT/residue_products.json" ;;
      models) "$PYTHON" examples/models.py --json "$OUT/models.json" ;;
      invariant_models) "$PYTHON" examples/models.py --model llama-prefill --model llama-decode --invariant \
        --json "$OUT/invariant_models.json" ;;
      transformer) "$PYTHON" examples/transformer.py --json "$OUT/transformer.json" ;;
      transformer_wide) "$PYTHON" examples/transformer.py --size cuda-wide --dtype bfloat16 --attention sdpa \
        --json "$OUT/transformer_wide.json" ;;
      first_product) "$PYTHON" tools/first_product.py --json "$OUT/first_product.json" ;;
      counters) "$PYTHON" tools/ncu_check.py --json "$OUT/ncu_check.json" ;;
      sweep) fastgemm bench --device cuda --preset sweep --step "${STEP:-512}" --method sustained \
        --json "$OUT/sweep.json" ;;
      *) echo "no benchmark $name" >&2 && false ;;
    esac || status=1
  done
  report bench "$OUT/bench.json" \
    "$OUT"/{ladder,reference,tensor_cores,weak_spots,random60,host,accuracy,peers,sizes,sweep}.json
  return $status
}

# Which kernel is fastest where, for csrc/core/static_tables.cpp.
stage_tune() {
  timeout 470 "$PYTHON" benchmarks/fits/make_static_tables.py --device cuda --no-cpp --json "$OUT/tuning.json" ${TUNE:-}
}

failed=()
for stage in ${*:-build test sanitize bench}; do
  if ! declare -F "stage_$stage" >/dev/null; then
    echo "gpu_check: no stage $stage; known: build test sanitize bench tune" >&2
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
