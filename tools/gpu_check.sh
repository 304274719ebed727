#!/usr/bin/env bash
# Everything that needs a GPU, from a bare checkout, in stages of at most 9 minutes. Nothing is
# downloaded.
#
#   tools/gpu_check.sh [--stages A,B] [--others] [OUT]    on a machine with a GPU and a Python with
#       torch, transformers and pytest; with nvcc, cmake, ninja, nanobind and cython, too, unless the
#       bundle has prebuilt binaries. Stages (tools/gpu_stages.sh has their steps):
#         build    the package in place, the tests and benchmarks, or what the bundle has of them
#         tests    the CUDA tests on the GPU
#         micro    what decides how the kernels go on: edges, barriers, reads, cuBLASLt's bits
#         kernels  each kernel at the shapes of real models
#         decode   one sequence: tokens/s, and prefill of a long prompt
#         serving  256 requests at once, the host's time, the time to the first token
#         python   the Python tests of the engine on the GPU
#         sanitize small CUDA tests under compute-sanitizer
#         others   the same figures of transformers; only with --others
#   tools/gpu_check.sh --dry-run [OUT]    the same without a GPU: small tests and tiny benchmarks on
#       the emulator of the tests, in a few minutes
#   tools/gpu_check.sh --bundle DIR [X.Y] [--prebuilt]    anywhere: tools/gpu_bundle.sh
#
# No step stops the others; each has a limit of its own. OUT (default build/gpu) gets
# gpu_check.tar.gz, written again after each step, so that it is there whatever ends the script, and
# at the end gpu_report.json and gpu_report.md, which is printed: figures beside targets and
# predictions, and what to do next. Results of earlier calls for other stages stay in the report.
#
# Environment: MLC_NATIVE_GPU_BUNDLE (the DIR, default .gpu_bundle), PYTHON (default python3),
# MLC_NATIVE_GPU_SECONDS (for everything, default 530). Exit status: 0 when all went well.
set -u
cd "$(dirname "$0")/.." || exit 1
export bundle=${MLC_NATIVE_GPU_BUNDLE:-.gpu_bundle} python=${PYTHON:-python3} dry=0
PATH=$PATH:/usr/local/cuda/bin

stages=build,tests,micro,kernels,decode,serving,python,sanitize
while [ $# -gt 0 ]; do
  case "$1" in
    --bundle) shift; exec tools/gpu_bundle.sh "$@" ;;
    --dry-run) dry=1 stages=$stages,others ;;
    --stages) stages=${2:?which}; shift ;;
    --others) stages=$stages,others ;;
    -*) sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) break ;;
  esac
  shift
done
export work=$PWD/build/gpu_check
[ $dry = 0 ] || { work=$work/dry_run; rm -rf "$work/results"; } # no figure of it means anything
mkdir -p "${1:-build/gpu}" "$work/results"
out=$(realpath "${1:-build/gpu}")
export results=$work/results # of all stages, also of earlier calls
end=$((SECONDS + ${MLC_NATIVE_GPU_SECONDS:-530}))

# pack: the results so far, as one file.
pack() {
  (
    flock 9
    tar -C "$work" -czf "$out/.gpu_check.tar.gz" results && mv "$out/.gpu_check.tar.gz" "$out/gpu_check.tar.gz"
  ) 9>"$work/pack.lock"
}
ended() { # ended NAME STATUS SECONDS: the row of a step in the report
  printf '%s\t%s\t%s\n' "$1" "$2" "$3" >"$results/$1.step"
}
not_run() { ended "$1" "not run: $2" 0; }

# step NAME LIMIT_S COMMAND...: runs it, its output in NAME.log; the command may be a function.
step() {
  local name=$1 limit=$2 start status=124
  shift 2
  [ $((end - SECONDS)) -gt "$limit" ] || limit=$((end - SECONDS))
  ended "$name" "did not end" 0 # what stays when the script is killed
  : >"$results/$name.log"
  start=$(date +%s%N)
  if [ "$limit" -gt 0 ]; then
    # In the background, so that a signal is handled at once.
    timeout -k 5 "$limit" bash -c '"$@"' step "$@" >"$results/$name.log" 2>&1 &
    wait $!
    status=$?
  else
    echo "no time was left" >"$results/$name.log"
  fi
  local milliseconds=$((($(date +%s%N) - start) / 1000000))
  ended "$name" $status "$((milliseconds / 1000)).$(printf %03d $((milliseconds % 1000)))"
  [ $status -eq 0 ] || { echo "== $name: status $status"; tail -n 25 "$results/$name.log"; }
  pack
  return $status
}
# step_with FILE NAME LIMIT_S COMMAND...: the same where an earlier step has made the file.
step_with() {
  if [ -e "$1" ]; then
    step "${@:2}"
  else
    not_run "$2" "$(basename "$1") is missing"
  fi
}

finish() {
  local status=$?
  trap - EXIT TERM INT
  "$python" tools/gpu_report.py "$results" || status=1
  cp "$results"/gpu_report.{json,md} "$out"
  pack
  ! grep -qvP '^[^\t]*\t(0\t|not run)' "$results"/*.step || [ $status -ne 0 ] || status=1
  exit $status
}
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 143' TERM INT
trap finish EXIT

# shellcheck source=tools/gpu_stages.sh
. "${MLC_NATIVE_GPU_STAGES:-tools/gpu_stages.sh}"
prepare
for stage in ${stages//,/ }; do
  if declare -F "stage_$stage" >/dev/null; then
    rm -f "$results/$stage.step" "$results/$stage".*.step
    "stage_$stage"
  else
    echo "there is no stage '$stage'" >&2
    ended "$stage" "no such stage" 0
  fi
done
exit 0 # finish says how it went
