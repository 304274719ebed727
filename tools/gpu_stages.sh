# Sourced by tools/gpu_check.sh: the steps of each stage. `step NAME LIMIT_S COMMAND...` runs one. A
# stage finds what an earlier one has made at fixed places, so that each can be run alone.
#
# `dry` is 1 for a run on the emulator; `results` is where steps leave their files.

prebuilt=$bundle/prebuilt
export prebuilt site=$work/site
tree=$("$python" -c 'import sys, sysconfig
print("build/%s-%s" % (sys.implementation.cache_tag, sysconfig.get_platform()))')
tree=$PWD/$tree
programs=$work/programs # links to what the build made
if [ -d "$prebuilt" ] && [ $dry = 0 ]; then
  programs=$prebuilt
fi
export tree programs
export device_tests=$programs/cuda_device_test
library=$PWD/mlc_native/lib/libmlc_native_cuda.so
bench_args="--device cuda:0"
if [ $dry = 1 ]; then
  library=$PWD/mlc_native/lib/libmlc_native_cuda_emulated.so
  bench_args="--tiny --threads 1 --device cuda:0 --model-lib $library"
fi
export library bench_args PYTHONPATH="$PWD:$site" PYTHONUNBUFFERED=1
export MLC_NATIVE_TEST_DEMO_MODEL=$PWD/mlc_native/demo_model
# Of a package that lies in a folder of ours, and of the package itself for prebuilt programs.
export LD_LIBRARY_PATH="$site/tvm_ffi/lib:$PWD/mlc_native/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

# Checkpoints lie in memory where there is room for 20 GB.
room=$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -n 1)
[ "${room:-0}" -lt 20 ] || export TMPDIR=/dev/shm

# ---- What every call needs ----

prepare() {
  step machine 60 machine
  step wheels 60 install_wheels
  [ $dry = 0 ] || return # NVIDIA's cuBLASLt is nothing for the emulator
  cublas_lt=$("$python" - <<'PY'
import glob, site, sys
roots = [*site.getsitepackages(), *sys.path]
found = [f for r in roots for f in glob.glob(r + "/nvidia/*/lib/libcublasLt.so.1[23]")]
print(found[0] if found else "")
PY
  )
  [ -z "$cublas_lt" ] || export MLC_NATIVE_CUBLASLT_LIB=$cublas_lt
}

machine() {
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader ||
    [ "$dry" = 1 ] || return 1
  nvcc --version 2>/dev/null | tail -n 2
  "$python" -c 'import platform, torch
print("Python", platform.python_version(), "torch", torch.__version__)'
  [ "$dry" = 0 ] || echo "DRY RUN: kernels ran on the emulator, shapes were tiny; no figure means anything"
}
install_wheels() { # those of the bundle whose package this Python lacks, into a folder of ours
  local missing
  missing=$("$python" - "$bundle"/wheels/*.whl <<'PY'
import importlib.metadata, pathlib, sys
for file in sys.argv[1:]:
    if not pathlib.Path(file).exists():
        continue
    try:
        importlib.metadata.version(pathlib.Path(file).name.split("-")[0])
    except importlib.metadata.PackageNotFoundError:
        print(file)
PY
  ) || return 1
  # shellcheck disable=SC2086
  [ -z "$missing" ] || "$python" -m pip install -q --no-index --no-deps --upgrade \
    --target "$site" $missing
}

# ---- build ----

stage_build() {
  if [ "$programs" = "$prebuilt" ]; then
    step unpack 60 unpack
    return
  fi
  [ -d "$bundle/googletest" ] && [ $dry = 0 ] && step googletest 60 build_googletest
  step package 300 build_package
  step programs 240 build_programs
}
unpack() { # the package of the bundle, over the sources, as a build in place leaves it
  rm -rf mlc_native/lib mlc_native/*.so
  "$python" -m zipfile -e "$prebuilt"/mlc_native-*.whl . &&
    chmod +x mlc_native/lib/mlc_native_grammar_worker && # which zipfile does not restore
    "$python" -c 'import mlc_native._core'
}
build_googletest() {
  cmake -S "$bundle/googletest" -B "$work/googletest" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$work/prefix" &&
    cmake --build "$work/googletest" && cmake --install "$work/googletest"
}
build_package() {
  # Warnings of compilers that nobody has tried yet stop nothing.
  local options="-DMLC_NATIVE_CUDA=ON -DMLC_NATIVE_CUDA_ARCHITECTURES=native -DMLC_NATIVE_WERROR=OFF"
  [ "$dry" = 0 ] || options=-DMLC_NATIVE_CUDA=OFF # the build of tools/test.sh
  MLC_NATIVE_BUILD_TESTS=$dry MLC_NATIVE_BUILD_BENCH=$dry CMAKE_ARGS="$options ${CMAKE_ARGS:-}" \
    "$python" setup.py build_ext --inplace
}
# In the package's build, or without Python and torch when that has failed.
build_programs() {
  local build=$tree options=(-DMLC_NATIVE_BUILD_TESTS=ON -DCMAKE_PREFIX_PATH="$work/prefix")
  local targets=(cuda_device_test cuda_kernels cuda_micro) target
  if [ "$dry" = 1 ]; then
    targets=(cuda_test cuda_kernels_emulated cuda_micro_emulated)
  elif [ ! -e "$library" ]; then
    build=$work/core
    options+=(-G Ninja -DMLC_NATIVE_PYTHON=OFF -DMLC_NATIVE_WITH_GRAMMAR=OFF -DMLC_NATIVE_CUDA=ON
      -DMLC_NATIVE_CUDA_ARCHITECTURES=native -DMLC_NATIVE_WERROR=OFF
      -DPython_EXECUTABLE="$(command -v "$python")")
  fi
  [ "$dry" = 1 ] || cmake -S csrc -B "$build" "${options[@]}" || return 1
  cmake --build "$build" --target "${targets[@]}" -- -k 0
  local status=$?
  mkdir -p "$programs"
  for target in "${targets[@]}"; do # the emulator's under the names of the real ones
    local name=${target%_emulated}
    [ "$target" != cuda_test ] || name=cuda_device_test
    ln -sfn "$(find "$build" -type f -name "$target" -print -quit)" "$programs/$name"
  done
  return $status
}

# ---- tests ----

# Slow ones: the tests that are small and yet go through every kernel.
small='*.MatchesTheReference:ElementwiseTest.*:GemvTest.EveryFormatAndOddShapes'
small+=':SamplingTest.DrawsAsTheSettingsSay:CudaSteps.RunningAheadChangesNothing'
small+=':LatentAttentionTest.*InEveryType:HeadProductsTest.*'

stage_tests() {
  export filter=*
  [ $dry = 0 ] || filter=$small
  rm -rf "$results/tests"
  step_with "$device_tests" tests 150 run_tests ||
    step_with "$results/tests/failed" tests-alone 60 run_failed_tests
}
# In parts side by side: what a fault on the device leaves behind spoils one of them.
run_tests() {
  local parts=$(($(nproc) > 8 ? 8 : $(nproc))) part pids=() status=0
  mkdir -p "$results/tests"
  for ((part = 0; part < parts; part++)); do
    GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$part "$device_tests" --gtest_filter="$filter" \
      >"$results/tests/part-$part.log" 2>&1 &
    pids+=($!)
  done
  for part in "${!pids[@]}"; do
    wait "${pids[part]}" || { status=1 && tail -n 5 "$results/tests/part-$part.log"; }
  done
  "$python" tools/gpu_report.py --failed "$results" >"$results/tests/failed"
  cat "$results/tests/failed"
  return $status
}
# Each in a process of its own, and what fails there under compute-sanitizer.
run_failed_tests() {
  xargs -a "$results/tests/failed" -P 8 -I {} bash -c '
    log=$results/tests/alone-${1//\//_}
    timeout 60 "$device_tests" --gtest_filter="$1" >"$log.txt" 2>&1 && exit
    echo "$1 fails alone, too"
    ! command -v compute-sanitizer >/dev/null || timeout 60 compute-sanitizer --error-exitcode 9 \
      "$device_tests" --gtest_filter="$1" >"$log.memcheck.txt" 2>&1
    exit 1' alone {}
}
stage_sanitize() {
  local tool
  for tool in memcheck racecheck; do
    if [ $dry = 1 ]; then
      not_run $tool "no GPU"
    elif command -v compute-sanitizer >/dev/null; then
      (
        trap 'kill $(jobs -p) 2>/dev/null' TERM
        step_with "$device_tests" $tool 240 compute-sanitizer --tool $tool --error-exitcode 9 \
          "$device_tests" --gtest_filter="$small"
      ) &
    else
      not_run $tool "no compute-sanitizer"
    fi
  done
  wait
}
stage_python() {
  # Those marked "emulated", too: they are the ones that also run without a GPU.
  local chosen="cuda and not cuda_build" from=tests/python
  [ $dry = 0 ] || chosen="test_seeded_sampling_repeats and cuda" from=tests/python/test_demo_model.py
  local together=() # engines take a part of the memory that is free then
  [ $dry = 1 ] || ! "$python" -c 'import xdist' 2>/dev/null || together=(-n 8)
  step_with "$library" pytest 240 env MLC_NATIVE_CUDA_TEST_LIB="$library" "$python" -m pytest -q \
    "$from" -k "$chosen" -m "not packaging" --continue-on-collection-errors -p no:cacheprovider \
    "${together[@]}"
}

# ---- benchmarks, one at a time ----

tiny() { [ $dry = 0 ] || echo --tiny; }
bench() { # bench FILE ROW...: what it has measured when its time is over stays
  # shellcheck disable=SC2086
  "$python" bench/gpu.py "${@:2}" $bench_args --json "$results/figures-$1.json"
}
independent() { # the same rows without dependent launches
  MLC_NATIVE_CUDA_DEPENDENT_LAUNCH=0 bench "$@"
}
export -f machine install_wheels unpack build_googletest build_package build_programs bench independent
export -f run_tests run_failed_tests

stage_micro() {
  # shellcheck disable=SC2046
  step_with "$programs/cuda_micro" micro 120 "$programs/cuda_micro" $(tiny) "$results/micro.json"
}
stage_kernels() {
  # shellcheck disable=SC2046
  step_with "$programs/cuda_kernels" kernels 90 "$programs/cuda_kernels" $(tiny) "$results/kernels.json"
}
stage_decode() {
  step_with "$library" decode-small 90 bench small --sides ours decode-0.6b decode-1b attention
  step_with "$library" decode-8b 150 bench 8b --sides ours decode-8b
  step_with "$library" decode-independent 40 independent independent --sides ours decode-0.6b
}
stage_serving() {
  step_with "$library" serving 90 bench serving --sides ours serving
  step_with "$library" host 60 bench host --sides ours host
  step_with "$library" trace 60 bench trace --sides ours trace
  step_with "$library" first-token 60 bench first-token --sides ours first-token
}
stage_others() {
  local row
  for row in decode-0.6b decode-1b decode-8b first-token serving; do
    step "others-$row" 150 bench "others-$row" --sides others "$row"
  done
}
