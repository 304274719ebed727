#!/usr/bin/env bash
# Builds the core with sanitizers and runs its tests and the simulation under them.
#
#   tools/sanitize.sh [address] [thread] [--short] [--seeds N]
#
# address  AddressSanitizer with leak detection and UndefinedBehaviorSanitizer, in build/address
# thread   ThreadSanitizer, in build/thread; tests/cpp/tsan.supp says what is suppressed and why
# Default: both. --short is for CI: address checks the engine's core, its pages and its threads, thread
# only what has threads; both check the C API. It leaves out the tests of kernels, sampling, tokenizer,
# grammar and models, and compiles no kernels but the portable ones; run the long form after a change
# there. Steps that run ahead are checked in the simulation. The CUDA tests are in neither form (the
# emulator checks them by itself). address also fuzzes each target for two seconds (tools/fuzz.sh does
# so for longer).
# --seeds: how many simulations under each (default 1000; short 120, thread 20); sim_test leaves out its
# own, which are the first 120. A failing check does not stop the later ones; the summary names it and
# the exit status is not 0.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/summary.sh

kinds=() short=0 seeds=
while [ $# -gt 0 ]; do
  case "$1" in
    address | thread) kinds+=("$1") ;;
    --short) short=1 ;;
    --seeds) seeds="${2:?}"; shift ;;
    *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
[ ${#kinds[@]} -gt 0 ] || kinds=(address thread)
jobs="$(nproc)"
# The short form: how many simulations, and which other programs of tests/cpp.
declare -A short_seeds=([address]=120 [thread]=20)
declare -A short_programs=(
  [address]="core_test threads_test kv_test sim_test c_api_test"
  [thread]="threads_test sim_test c_api_test")

build() { # build KIND SANITIZERS [TARGETS...]
  local log="build/$1.log" targets=("${@:3}")
  mkdir -p build
  cmake -S csrc -B "build/$1" -G Ninja -DMLC_NATIVE_PYTHON=OFF \
    -DMLC_NATIVE_BUILD_TESTS=ON -DMLC_NATIVE_SANITIZE="$2" \
    -DMLC_NATIVE_PORTABLE_ONLY="$short" >"$log" 2>&1 &&
    cmake --build "build/$1" -j "$jobs" ${targets[@]:+--target "${targets[@]}"} >>"$log" 2>&1 || { tail -n 60 "$log"; false; }
}
run_tests() { # run_tests KIND [PROGRAMS...]
  local pattern
  pattern="$(IFS='|'; echo "${*:2}")"
  GTEST_FILTER=-Simulation.Seeds ctest --test-dir "build/$1" -j "$jobs" --timeout 3600 \
    --output-on-failure --no-tests=error -R "^(${pattern:-.*_test})(_[0-9]+)?\$"
}
# fuzz SECONDS SEED: of each target; a finding stays in the folder as TARGET.last.
fuzz() {
  mkdir -p build/address/work &&
    (cd build/address/work && ../fuzz/mlc_native_fuzz --seconds "$1" --seed "$2" "$OLDPWD/tests/fuzz/corpus")
}
simulate() { "build/$1/tests/mlc_native_sim" --seeds "1..$2" --jobs "$jobs"; }

# A size that no machine has is std::bad_alloc, as without a sanitizer: tests ask for such sizes.
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1"
ASAN_OPTIONS+=":allocator_may_return_null=1"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export TSAN_OPTIONS="suppressions=$PWD/tests/cpp/tsan.supp:halt_on_error=1:second_deadlock_stack=1"
TSAN_OPTIONS+=":allocator_may_return_null=1"
for kind in "${kinds[@]}"; do
  sanitizers="$kind" programs=()
  [ "$kind" = address ] && sanitizers=address,undefined
  [ "$short" = 1 ] && read -ra programs <<<"${short_programs[$kind]}"
  also=(mlc_native_sim)
  [ "$kind" = address ] && also+=(mlc_native_fuzz)
  check "$sanitizers: build" \
    build "$kind" "$sanitizers" ${programs[@]:+"${programs[@]}" "${also[@]}"} || continue
  check "$sanitizers: C++ tests" run_tests "$kind" "${programs[@]}"
  # Each commit has a seed of its own.
  [ "$kind" = address ] &&
    check "$sanitizers: fuzzing" fuzz 2 "$((0x$(git rev-parse --short=7 HEAD 2>/dev/null || echo 1)))"
  # One engine is on one thread, but several engines are in the process.
  num_seeds="${seeds:-$((short ? short_seeds[$kind] : 1000))}"
  check "$sanitizers: $num_seeds simulations" simulate "$kind" "$num_seeds"
done
finish
