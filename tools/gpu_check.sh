#!/usr/bin/env bash
# Everything that needs a GPU, from a bare checkout, in less than 9 minutes.
#
#   tools/gpu_check.sh [OUT]           on a machine with a GPU, nvcc, cmake, ninja and Python with
#                                      torch; writes OUT/gpu_report.json and prints a table
#   tools/gpu_check.sh --bundle DIR    anywhere: puts into DIR what such a machine may lack and
#                                      cannot download (GoogleTest's sources, the JSON headers)
#
# Environment: MLC_NATIVE_GPU_BUNDLE (the DIR, default .gpu_bundle), PYTHON (default python3).
# No step stops the others; each has a limit of its own, and the report says how it ended. Exit
# status: 0 when all went well.
set -u
cd "$(dirname "$0")/.." || exit 1
bundle=${MLC_NATIVE_GPU_BUNDLE:-.gpu_bundle}
python=${PYTHON:-python3}

if [ "${1:-}" = --bundle ]; then
  bundle=${2:?usage: tools/gpu_check.sh --bundle DIR}
  mkdir -p "$bundle"
  json=$("$python" -c 'import nlohmann_json as j; print(j.__path__[0])') || exit 1
  cp -r /usr/src/googletest "$json/include" "$bundle"/ || exit 1
  du -sh "$bundle"
  exit
fi

out=${1:-build/gpu}
build=build/gpu_check
mkdir -p "$out" "$build"
: >"$out/steps.tsv"
failed=0

# step NAME LIMIT_S COMMAND...: runs it, its output in OUT/NAME.log
step() {
  local name=$1 limit=$2 start status
  shift 2
  start=$(date +%s%N)
  timeout -k 5 "$limit" bash -c '"$@"' step "$@" >"$out/$name.log" 2>&1  # "$@" may be a function
  status=$?
  local milliseconds=$((($(date +%s%N) - start) / 1000000))
  printf '%s\t%d\t%d.%03d\n' "$name" "$status" $((milliseconds / 1000)) \
    $((milliseconds % 1000)) >>"$out/steps.tsv"
  if [ $status -ne 0 ]; then
    failed=1
    echo "== $name: status $status"
    tail -n 25 "$out/$name.log"
  fi
  return $status
}

build_googletest() {
  cmake -S "$bundle/googletest" -B "$build/googletest" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$PWD/$build/prefix" &&
    cmake --build "$build/googletest" && cmake --install "$build/googletest"
}
configure() {
  cmake -S csrc -B "$build/core" -G Ninja -DMLC_NATIVE_WITH_TORCH=OFF -DMLC_NATIVE_PYTHON=OFF \
    -DMLC_NATIVE_WITH_GRAMMAR=OFF -DMLC_NATIVE_BUILD_TESTS=ON -DMLC_NATIVE_CUDA=ON \
    -DMLC_NATIVE_CUDA_ARCHITECTURES=native -DCMAKE_PREFIX_PATH="$PWD/$build/prefix" \
    ${json_include:+-DMLC_NATIVE_JSON_INCLUDE="$json_include"}
}

machine() {
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
  nvcc --version | tail -n 2
  "$python" -c 'import torch; print("torch", torch.__version__)'
}
export -f build_googletest configure machine
export bundle build python

json_include=
[ -d "$bundle/include/nlohmann" ] && json_include=$PWD/$bundle/include
export json_include
step machine 30 machine
[ -d "$bundle/googletest" ] && step googletest 90 build_googletest
step configure 60 configure
step build 240 cmake --build "$build/core" --target cuda_device_test cuda_kernels

tests=$build/core/tests/cuda/cuda_device_test
if [ -x "$tests" ]; then
  step tests 90 "$tests" --gtest_output=json:"$out/tests.json"
  if command -v compute-sanitizer >/dev/null; then
    # Slow: the tests that are small and yet go through every kernel.
    small='*MatchesTheReference*:Elementwise*:Gemv*Odd*:Sampling*Settings*'
    for tool in memcheck racecheck; do
      step "$tool" 60 compute-sanitizer --tool $tool --error-exitcode 9 "$tests" --gtest_filter="$small"
    done
  fi
  step kernels 100 "$build/core/bench/cuda_kernels" "$out/kernels.json"
else
  failed=1
fi
step peak 60 "$python" tools/gpu_report.py --measure-peak "$out/peak.json"

"$python" tools/gpu_report.py "$out" || failed=1
exit $failed
