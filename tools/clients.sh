#!/usr/bin/env bash
# Libraries of others against a live `mlc-native serve`, and speculators against our draft heads: the
# tests of tests/clients.
#
#   tools/clients.sh [SET...]
#
# A SET is a folder of tests/clients. Libraries that cannot be installed together are in different
# sets. Each has an environment of its own below build/clients, with the exact versions of its
# requirements.txt, and mlc_native is not in it: the server runs in the environment of the checks.
# Without a SET: those that CI runs. The exit status is 77 when the package index is not there or lacks
# one of them. Tests that fail are run again, once: some wait for what a busy machine does late.
set -u
cd "$(dirname "$0")/.." || exit 1
. tools/setup_env.sh
unset PIP_CONSTRAINT # requirements.txt has all versions
: "${PYTHON:=$VENV/bin/python}"
[ $# -gt 0 ] || set -- current openai_2

# environment SET: makes what is not there or was made from other requirements.
environment() {
  local home="build/clients/$1" requirements="tests/clients/$1/requirements.txt"
  cmp -s "$requirements" "$home/requirements.txt" && return
  rm -rf "$home" && mkdir -p "$home" && "$PYTHON" -m venv "$home" || return
  # Bytecode is made of what the tests import, by and by.
  "$home/bin/python" -m pip install -q --no-deps --no-compile -r "$requirements" \
    >"$home/install.log" 2>&1 || { tail -n 20 "$home/install.log"; return 1; }
  cp "$requirements" "$home/"
}

mkdir -p build/clients
if ! "$PYTHON" -m pip download -q --no-deps -d build/clients/probe iniconfig >/dev/null 2>&1; then
  echo "there is no package index"
  exit 77
fi
for set in "$@"; do environment "$set" & installs[$!]=$set; done
for pid in "${!installs[@]}"; do
  wait "$pid" || { echo "the environment ${installs[$pid]} could not be made"; exit 77; }
done

run() { # run SET [OPTIONS...]
  MLC_NATIVE_PYTHON="$PYTHON" "build/clients/$1/bin/python" -m pytest -q "tests/clients/$1" \
    -o cache_dir="$ROOT/build/clients/$1/cache" "${@:2}"
}
# The sets wait for servers most of the time, so they run at once.
declare -A runs
again=()
for set in "$@"; do
  run "$set" >"build/clients/$set.log" 2>&1 &
  runs[$set]=$!
done
for set in "$@"; do
  wait "${runs[$set]}" && failed=0 || failed=1
  cat "build/clients/$set.log"
  [ $failed = 0 ] || again+=("$set")
done
status=0
for set in "${again[@]}"; do
  say "again: what failed of $set"
  run "$set" --lf || status=1
done
exit $status
