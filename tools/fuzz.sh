#!/usr/bin/env bash
# Fuzzes what reads the texts and files of others (tests/fuzz/targets.h), under AddressSanitizer and
# UndefinedBehaviorSanitizer, SECONDS for each target.
#
#   tools/fuzz.sh SECONDS [--seed N] [TARGET...]
#
# With clang (Debian: apt-get install clang-19 libclang-rt-19-dev), libFuzzer runs the targets and follows
# which code an input reaches; what it adds to the corpus stays in build/fuzz/corpus. Else a driver of our
# own mutates the committed corpus (tests/fuzz/main.cc), in build/address, which tools/sanitize.sh also uses.
# A finding is copied to tests/fuzz/corpus/TARGET/found-HASH: once it is mended, commit it, and every run
# tries it again.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/summary.sh

[[ "${1:-}" =~ ^[0-9]+$ ]] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
duration="$1" seed=1 targets=()
shift
while [ $# -gt 0 ]; do
  case "$1" in
    --seed) seed="${2:?}"; shift ;;
    *) targets+=("$1") ;;
  esac
  shift
done
corpus="$PWD/tests/fuzz/corpus"
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls "$corpus")
export ASAN_OPTIONS="detect_leaks=1:strict_string_checks=1:allocator_may_return_null=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
folder="$PWD/build/address" program=mlc_native_fuzz options=()
for clang in clang++-{22..16} clang++ ""; do
  command -v "$clang" >/dev/null && break
done
if [ -n "$clang" ]; then
  folder="$PWD/build/fuzz" program=mlc_native_libfuzzer
  options=(-DCMAKE_CXX_COMPILER="$clang" -DMLC_NATIVE_WERROR=OFF
    -DCMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link)
fi

build() {
  mkdir -p "$folder"
  { cmake -S csrc -B "$folder" -G Ninja -DMLC_NATIVE_PYTHON=OFF -DMLC_NATIVE_BUILD_TESTS=ON \
    -DMLC_NATIVE_SANITIZE=address,undefined "${options[@]}" &&
    cmake --build "$folder" -j "$(nproc)" --target "$program"; } >"$folder.log" 2>&1 ||
    { tail -n 60 "$folder.log"; false; }
}
keep() { # keep TARGET FILE...: copies findings to the corpus
  local file
  for file in "${@:2}"; do
    [ -f "$file" ] || continue
    cp "$file" "$corpus/$1/found-$(sha256sum "$file" | cut -c1-12)"
    echo "finding: $(ls -t "$corpus/$1"/found-* | head -n 1)"
  done
}
run_one() { # run_one TARGET
  local work="$folder/work/$1" status=0
  mkdir -p "$work" && rm -f "$work"/*.last "$work"/crash-* "$work"/timeout-* "$work"/oom-*
  if [ $program = mlc_native_fuzz ]; then
    (cd "$work" && "$folder/fuzz/$program" --seconds "$duration" --seed "$seed" "$corpus" "$1") ||
      status=$?
  else
    mkdir -p "$folder/corpus/$1"
    (cd "$work" && MLC_NATIVE_FUZZ_TARGET="$1" "$folder/fuzz/$program" -max_total_time="$duration" \
      -seed="$seed" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
      "$folder/corpus/$1" "$corpus/$1" >"$work/log" 2>&1) || status=$?
    [ $status = 0 ] || tail -n 60 "$work/log"
    grep -E "number_of_executed_units|peak_rss_mb" "$work/log"
  fi
  [ $status = 0 ] || keep "$1" "$work"/*.last "$work"/crash-* "$work"/timeout-* "$work"/oom-*
  return $status
}

check "fuzz: build" build || finish
for target in "${targets[@]}"; do
  check "fuzz: $target, $duration s" run_one "$target"
done
finish
