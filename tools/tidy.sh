#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy, among them clang's thread-safety analysis.
#
#   tools/tidy.sh [--changed] [--quick] [--jobs N] [FILE...]
#
# Checks FILEs, or what --changed finds, or else every source file of the library in csrc, except the
# kernels and what is CUDA's. Bindings, torch ops, tests and benchmarks are not checked. --changed
# takes the files that are not committed, those that differ from the merge base with main (on main
# itself: from the commit before), and the source files of headers among them. --quick leaves out the
# static analyzer, which takes nine tenths of the time.
# --jobs: how many files at a time (default: all cores).
# Needs clang-tidy, which `pip install .[test]` brings, and CMake, to configure build/tidy. Where one
# is missing, it says that it was skipped, and succeeds. Exit status 1 when there is a finding.
set -u
cd "$(dirname "$0")/.." || exit 1
[ -d "${MLC_NATIVE_VENV:-.venv}/bin" ] && PATH="$(realpath "${MLC_NATIVE_VENV:-.venv}")/bin:$PATH"

changed=0 quick=() jobs="$(nproc)" files=()
while [ $# -gt 0 ]; do
  case "$1" in
    --changed) changed=1 ;;
    --quick) quick=(--checks='-clang-analyzer-*') ;;
    --jobs) jobs="${2:?}"; shift ;;
    -*) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
    *) files+=("$1") ;;
  esac
  shift
done

skip() { echo "clang-tidy: skipped, $*"; exit 0; }

changed_files() {
  local base
  base="$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null)"
  [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base="HEAD~1"
  git diff --name-only --diff-filter=d "$base" -- 2>/dev/null
  git ls-files --others --exclude-standard
}
sources_of() { # reads names of files; a header stands for the source file of its name
  local file
  while read -r file; do
    case "$file" in
      *.cc) echo "$file" ;;
      include/*.h) git ls-files ":(glob)csrc/**/$(basename "${file%.h}").cc" ;;
      *.h | *.inl) git ls-files "${file%.*}.cc" ;;
    esac
  done
}
configure() { # a compile command for every file: no unity build
  cmake -S csrc -B build/tidy -G Ninja -DMLC_NATIVE_UNITY=OFF \
    -DMLC_NATIVE_CUDA=OFF -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DPython_EXECUTABLE="$(command -v python3)"
}
compiled() { # prints those of the names read that build/tidy compiles
  sed -n 's/.*"file": *"\(.*\)".*/\1/p' build/tidy/compile_commands.json | tr '\n' '\0' |
    xargs -0 realpath -m --relative-to=. | LC_ALL=C sort -u >build/tidy/files.txt
  grep -E '^csrc/' | grep -vE '^csrc/(kernels/(cpu|cuda)|models/cuda)/' |
    LC_ALL=C sort -u | LC_ALL=C comm -12 - build/tidy/files.txt
}

if [ $changed = 1 ]; then
  mapfile -t -O "${#files[@]}" files < <(changed_files | sources_of)
elif [ ${#files[@]} = 0 ]; then
  mapfile -t files < <(git ls-files 'csrc/*.cc')
fi
[ ${#files[@]} -gt 0 ] || { echo "clang-tidy: no C++ file has changed"; exit 0; }
command -v clang-tidy >/dev/null || skip "it is not installed (pip install '.[test]')"
command -v cmake >/dev/null || skip "there is no cmake"
mkdir -p build/tidy
configure >build/tidy/configure.log 2>&1 || { tail -n 20 build/tidy/configure.log; exit 1; }
mapfile -t files < <(printf '%s\n' "${files[@]}" | compiled)
[ ${#files[@]} -gt 0 ] || { echo "clang-tidy: none of the files is checked"; exit 0; }

printf '%s\0' "${files[@]}" |
  xargs -0 -P "$jobs" -n 1 clang-tidy --quiet -p build/tidy "${quick[@]}" 2>build/tidy/errors.log
status=$?
[ $status = 0 ] || grep -v 'warnings\? \(generated\|treated\)' build/tidy/errors.log | head -n 20
echo "clang-tidy: ${#files[@]} files, $([ $status = 0 ] && echo 'no findings' || echo 'see above')"
[ $status = 0 ]
