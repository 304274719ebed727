#!/usr/bin/env bash
# Style and types: ruff, mypy, clang-format, and clang-tidy on the C++ files that have changed.
# Changes nothing; `tools/lint.sh --fix` does.
set -u
cd "$(dirname "$0")/.." || exit 1
[ -x "${MLC_NATIVE_VENV:-.venv}/bin/ruff" ] && PATH="${MLC_NATIVE_VENV:-.venv}/bin:$PATH"

mapfile -t cpp < <(git ls-files 'csrc/*' 'include/*' 'tests/cpp/*' 'tests/fuzz/*' 'bench/*' 2>/dev/null |
  grep -E '\.(h|cc|inl|cu|cuh)$' | while read -r f; do [ -f "$f" ] && echo "$f"; done)
[ ${#cpp[@]} -gt 0 ] || mapfile -t cpp < <(find csrc include tests/cpp tests/fuzz bench -name '*.h' -o -name '*.cc' -o -name '*.inl')

if [ "${1:-}" = --fix ]; then
  ruff check --fix -q . ; clang-format -i "${cpp[@]}"
  exit
fi
failed=0
python3 tools/make_arguments.py || failed=1 # which mypy reads
types="$(mktemp)" && trap 'rm -f "$types"' EXIT
mypy >"$types" 2>&1 & # takes longest
mypy=$!
ruff check . || failed=1
clang-format --dry-run -Werror "${cpp[@]}" 2>&1 | grep -E 'error:' | cut -d: -f1 | sort | uniq -c | head -40
[ "${PIPESTATUS[0]}" = 0 ] || { echo "clang-format: run tools/lint.sh --fix"; failed=1; }
tools/tidy.sh --changed --quick || failed=1
wait $mypy || failed=1
cat "$types"
exit $failed
