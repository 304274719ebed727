#!/usr/bin/env bash
# Everything that needs a GPU, from a bare checkout, in less than 9 minutes: builds the package in
# place with CUDA for this GPU, runs the CUDA tests, also under compute-sanitizer, the engine's
# Python tests on the GPU, and the benchmarks. Nothing is downloaded.
#
#   tools/gpu_check.sh [OUT]            on a machine with a GPU, nvcc, cmake, ninja, and a Python
#                                       with torch, nanobind, cython, transformers and pytest; writes
#                                       OUT/gpu_report.{json,md} (default build/gpu), prints the latter
#   tools/gpu_check.sh --dry-run [OUT]  the same without a GPU: nvcc compiles for one architecture,
#                                       tests and tiny benchmarks run on the emulator of the tests
#   tools/gpu_check.sh --bundle DIR [X.Y]   anywhere: puts into DIR what such a machine may lack and
#                                       cannot download, for Python X.Y (default: of PYTHON): wheels,
#                                       GoogleTest's sources
#
# Environment: MLC_NATIVE_GPU_BUNDLE (the DIR, default .gpu_bundle), PYTHON (default python3),
# MLC_NATIVE_GPU_SECONDS (for everything, default 530; a dry run: 7200). No step stops the others;
# each has a limit of its own, and the report says what was run, how it ended and how long it took.
# Exit status: 0 when all went well.
set -u
cd "$(dirname "$0")/.." || exit 1
bundle=${MLC_NATIVE_GPU_BUNDLE:-.gpu_bundle}
python=${PYTHON:-python3}
PATH=$PATH:/usr/local/cuda/bin

make_bundle() { # make_bundle DIR PYTHON_VERSION: what machines with torch and transformers often lack
  local download=("$python" -m pip download -q --only-binary=:all: --python-version "$2" -d "$1")
  "${download[@]}" --no-deps nlohmann-json prometheus-client "pytest-asyncio>=0.24" \
    "apache-tvm-ffi>=0.1.15,<0.2" "xgrammar>=0.2.8,<0.3" &&
    "${download[@]}" "pydantic>=2" jsonschema && # with what they need, in versions that fit
    cp -r /usr/src/googletest "$1" && du -sh "$1"
}
if [ "${1:-}" = --bundle ]; then
  make_bundle "${2:?usage: tools/gpu_check.sh --bundle DIR [X.Y]}" \
    "${3:-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}"
  exit
fi

dry=0
[ "${1:-}" = --dry-run ] && { dry=1; shift; }
mkdir -p "${1:-build/gpu}" build/gpu_check
out=$(realpath "${1:-build/gpu}")
work=$PWD/build/gpu_check
rm -f "$out"/*.json "$out"/*.log
: >"$out/steps.tsv"
end=$((SECONDS + ${MLC_NATIVE_GPU_SECONDS:-$((dry ? 7200 : 530))}))
patience=$((dry ? 20 : 1)) # a dry run has two cores, not sixteen

# step NAME LIMIT_S COMMAND...: runs it, its output in OUT/NAME.log
step() {
  local name=$1 limit=$(($2 * patience)) start status
  shift 2
  [ $((end - SECONDS)) -gt "$limit" ] || limit=$((end - SECONDS))
  start=$(date +%s%N)
  if [ "$limit" -gt 0 ]; then
    timeout -k 5 "$limit" bash -c '"$@"' step "$@" >"$out/$name.log" 2>&1 # "$@" may be a function
    status=$?
  else
    status=124
    echo "no time was left" >"$out/$name.log"
  fi
  local milliseconds=$((($(date +%s%N) - start) / 1000000))
  printf '%s\t%d\t%d.%03d\n' "$name" "$status" $((milliseconds / 1000)) \
    $((milliseconds % 1000)) >>"$out/steps.tsv"
  [ $status -eq 0 ] || { echo "== $name: status $status"; tail -n 25 "$out/$name.log"; }
  return $status
}
not_run() { printf '%s\tnot run: %s\t0\n' "$1" "$2" >>"$out/steps.tsv"; }
# step_with FILE NAME LIMIT_S COMMAND...: the same where an earlier step has built the file
step_with() {
  if [ -e "$1" ]; then
    step "${@:2}"
  else
    printf '%s\tnot built\t0\n' "$2" >>"$out/steps.tsv"
  fi
}

machine() {
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader ||
    [ "$dry" = 1 ] || return 1
  nvcc --version | tail -n 2
  "$python" -c 'import platform, torch
print("Python", platform.python_version(), "torch", torch.__version__)'
  [ "$dry" = 0 ] || echo "DRY RUN: kernels ran on the emulator, shapes were tiny; no figure means anything"
}
install_wheels() { # those of the bundle whose package this Python lacks, into a folder of ours
  local missing
  missing=$("$python" - "$bundle"/*.whl <<'PY'
import importlib.metadata, pathlib, sys
for file in sys.argv[1:]:
    try:
        importlib.metadata.version(pathlib.Path(file).name.split("-")[0])
    except importlib.metadata.PackageNotFoundError:
        print(file)
PY
  ) || return 1
  # shellcheck disable=SC2086
  [ -z "$missing" ] || "$python" -m pip install -q --no-index --no-deps --upgrade \
    --target "$work/site" $missing
}
build_googletest() {
  cmake -S "$bundle/googletest" -B "$work/googletest" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$work/prefix" &&
    cmake --build "$work/googletest" && cmake --install "$work/googletest"
}
build_package() {
  CMAKE_ARGS="-DMLC_NATIVE_CUDA=ON -DMLC_NATIVE_CUDA_ARCHITECTURES=$architecture" \
    "$python" setup.py build_ext --inplace
}
configure_tests() { # in the package's build, or without Python and torch when that has failed
  [ "$package_built" = 1 ] || set -- -G Ninja -DMLC_NATIVE_PYTHON=OFF \
    -DMLC_NATIVE_WITH_GRAMMAR=OFF -DMLC_NATIVE_CUDA=ON \
    -DMLC_NATIVE_CUDA_ARCHITECTURES="$architecture" -DPython_EXECUTABLE="$(command -v "$python")"
  cmake -S csrc -B "$tree" "$@" -DMLC_NATIVE_BUILD_TESTS=ON -DCMAKE_PREFIX_PATH="$work/prefix"
}
bench() { # bench ROW...: one process; what it has measured when its time is over stays
  # shellcheck disable=SC2086
  "$python" bench/gpu.py "$@" $bench_args --json "$out/figures-$1.json"
}
export -f machine install_wheels build_googletest build_package configure_tests bench

site=$work/site
architecture=native
bench_args="--device cuda:0"
[ $dry = 0 ] || architecture=90-real
export out work bundle python dry architecture bench_args PYTHONPATH="$PWD:$site" PYTHONUNBUFFERED=1

# ---- build ----
step machine 30 machine
step wheels 30 install_wheels
step googletest 60 build_googletest
package_built=0
tree=$("$python" -c 'import sys, sysconfig
print("build/%s-%s" % (sys.implementation.cache_tag, sysconfig.get_platform()))')
step package 240 build_package && package_built=1 || tree=$work/core
tree=$(realpath -m "$tree")
export package_built tree
step configure 30 configure_tests
targets=(cuda_device_test cuda_kernels)
[ $dry = 0 ] || targets+=(cuda_test mlc_native_cuda_emulated)
step build 180 cmake --build "$tree" --target "${targets[@]}" -- -k 0

# ---- tests, side by side ----
device_tests=$tree/tests/cuda/cuda_device_test
library=$PWD/mlc_native/lib/libmlc_native_cuda.so
[ "$package_built" = 1 ] || library=none # the engine in Python is missing
if [ $dry = 1 ]; then
  device_tests=$tree/tests/cuda/cuda_test
  library=$tree/tests/cuda/libmlc_native_cuda_emulated.so
  bench_args="--tiny --threads 1 --device cuda:0 --model-lib $library"
fi
step_with "$device_tests" tests 90 "$device_tests" --gtest_output=json:"$out/tests.json" &
# Slow: the tests that are small and yet go through every kernel.
small='*.MatchesTheReference:ElementwiseTest.*:GemvTest.EveryFormatAndOddShapes'
small+=':SamplingTest.DrawsAsTheSettingsSay:CudaSteps.RunningAheadChangesNothing'
for tool in memcheck racecheck; do
  if [ $dry = 1 ]; then
    not_run $tool "no GPU"
  elif command -v compute-sanitizer >/dev/null; then
    step_with "$device_tests" $tool 80 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$device_tests" --gtest_filter="$small" &
  else
    not_run $tool "no compute-sanitizer"
  fi
done
step_with "$library" pytest 90 env MLC_NATIVE_CUDA_TEST_LIB="$library" "$python" -m pytest -q tests/python \
  -k "cuda and not emulated and not cuda_build" -m "not packaging" --continue-on-collection-errors \
  -p no:cacheprovider &
wait

# ---- benchmarks, one at a time ----
# Checkpoints lie in memory where there is room for 20 GB.
room=$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -n 1)
[ "${room:-0}" -lt 20 ] || export TMPDIR=/dev/shm
if [ $dry = 1 ]; then
  not_run kernels "no GPU"
else
  step_with "$tree/bench/cuda_kernels" kernels 70 "$tree/bench/cuda_kernels" "$out/kernels.json"
fi
step_with "$library" decode-small 110 bench decode-0.6b decode-1b attention host
step_with "$library" decode-8b 120 bench decode-8b
step_with "$library" serving 90 bench serving
step_with "$library" first-token 60 bench first-token

"$python" tools/gpu_report.py "$out" || exit 1
! grep -qvP '^[^\t]*\t(0\t|not run)' "$out/steps.tsv"
