#!/usr/bin/env bash
# Sets up, builds once, and runs every check: C++ tests (with torch, and of the torch-free core),
# simulations, sanitizers, linters, pytest. Where nvcc is, the CUDA library is compiled for all its
# architectures; its kernels and models run on the emulator, what needs a GPU is tools/gpu_check.sh's.
# Enough by itself on a fresh machine. A failing check does not stop the later ones; the summary at
# the end names it and the exit status is not 0.
#
#   tools/test.sh [--cpp-only | --python-only] [--fast]
#
# --fast leaves out the torch-free builds (of this machine and of AArch64), the simulations, the
# sanitizers, and the tests marked slow or packaging.
# Sanitizers run in their short form: see tools/sanitize.sh for what it leaves out.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup_env.sh

cpp=1 python=1 fast=0
for argument in "$@"; do
  case "$argument" in
    --cpp-only) python=0 ;;
    --python-only) cpp=0 ;;
    --fast) fast=1 ;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
done

jobs="$(nproc)"
build_core() { # with nvcc, the package has been built already
  cmake -S csrc -B build/core -G Ninja -DMLC_NATIVE_WITH_TORCH=OFF -DMLC_NATIVE_PYTHON=OFF \
    -DMLC_NATIVE_BUILD_TESTS=ON -DMLC_NATIVE_WITH_GRAMMAR=ON -DMLC_NATIVE_CUDA=OFF \
    -DPython_EXECUTABLE="$PYTHON" >build/core.log 2>&1 &&
    cmake --build build/core -j "$jobs" >>build/core.log 2>&1 || { tail -n 60 build/core.log; false; }
}
seeds=2000
simulate() { timeout -k 10 600 "$1/tests/mlc_native_sim" --seeds "1..$seeds" --jobs "$jobs"; }
run_ctest() { timeout -k 10 900 ctest --test-dir "$1" -j "$jobs" --output-on-failure --no-tests=error; }

system_packages tests
python_environment
export MLC_NATIVE_BUILD_TESTS=1 MLC_NATIVE_BUILD_BENCH=1
check "build" install_package '[test]' || exit 1 # nothing below means anything without it
MLC_NATIVE_BUILD_DIR="$("$PYTHON" -c 'import sys, sysconfig
print("build/%s-%s" % (sys.implementation.cache_tag, sysconfig.get_platform()))')"
export MLC_NATIVE_BUILD_DIR="$ROOT/$MLC_NATIVE_BUILD_DIR"

if [ $cpp = 1 ]; then
  check "C++ tests" run_ctest "$MLC_NATIVE_BUILD_DIR"
  if [ $fast = 0 ]; then
    check "torch-free core: build" build_core &&
      check "torch-free core: C++ tests" run_ctest build/core &&
      check "torch-free core: $seeds simulations" simulate build/core
    check "torch-free core: tests of AArch64 in qemu" tools/cross_aarch64.sh
  fi
fi
if [ $python = 1 ]; then
  check "lint" tools/lint.sh
  select=()
  [ $fast = 1 ] && select=(-m "not slow and not packaging")
  check "pytest" timeout -k 10 1500 "$PYTHON" -m pytest -q "${select[@]}"
fi
[ $cpp = 1 ] && [ $fast = 0 ] && check "sanitizers" tools/sanitize.sh --short

finish
