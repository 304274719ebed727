# Sourced by tools/test.sh, tools/demo.sh and tools/cross_aarch64.sh. Turns a bare Debian-like machine
# into one that can build: system packages (as root, otherwise it lists them), a virtual environment,
# the build requirements of pyproject.toml and, where asked for, torch. Sets ROOT, VENV and PYTHON
# (the environment's), and tells ccache that clones at other paths compile the same.
#
# MLC_NATIVE_VENV   the environment to use (default: .venv in the repository)
# MLC_NATIVE_TORCH  the torch release to build the ops and to test with (default: 2.13.0)

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${MLC_NATIVE_VENV:-$ROOT/.venv}"

export CCACHE_BASEDIR="$ROOT" CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros

. "$ROOT/tools/summary.sh"
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# The first interpreter that is new enough; prints nothing when there is none.
find_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 python3.11 python3.12 python3.13 python3.14; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
}

# logged COMMAND...: its output goes to build/setup.log and is shown if it fails.
logged() {
  local log="$ROOT/build/setup.log"
  mkdir -p "$ROOT/build"
  "$@" >"$log" 2>&1 </dev/null || { tail -n 40 "$log"; false; }
}

# with_progress LOG COMMAND...: its output goes to LOG. Shows the latest of ninja's counters: on a
# terminal in a line that changes, otherwise in a line every half a minute.
with_progress() {
  local log="$1" shown=$SECONDS counter status
  shift
  "$@" >"$log" 2>&1 </dev/null &
  while kill -0 $! 2>/dev/null; do
    sleep 1
    counter="$(grep -oE '\[[0-9]+/[0-9]+\] (Building|Linking)' "$log" | tail -n 1)"
    [ -n "$counter" ] || continue
    if [ -t 1 ]; then
      printf '\r   %s ' "${counter% *}"
    elif [ $((SECONDS - shown)) -ge 30 ]; then
      shown=$SECONDS
      echo "   ${counter% *}"
    fi
  done
  wait $! && status=0 || status=$?
  [ -t 1 ] && printf '\r                    \r'
  return $status
}

has_header() { printf '#include <%s>\n' "$1" | g++ -x c++ -E - >/dev/null 2>&1; }
has_python_dev() {
  "$1" -c 'import ensurepip, os, sysconfig
raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' 2>/dev/null
}

# system_packages [tests] [aarch64] [fuzzing]: what is missing of compiler, Python headers, (tests) test
# libraries, (aarch64) what it takes to compile for AArch64 and to run that. What only helps is installed
# if it can be: ccache, (tests) abidiff, (fuzzing) a clang with libFuzzer.
system_packages() {
  local missing=() helpful=() python
  command -v g++ >/dev/null || missing+=(g++)
  python="$(find_python)"
  if [ -z "$python" ] || { [ ! -x "$VENV/bin/python" ] && ! has_python_dev "$python"; }; then
    missing+=(python3 python3-venv python3-dev)
  fi
  if [[ " $* " = *" tests "* ]]; then
    has_header gtest/gtest.h || missing+=(libgtest-dev)
    has_header gmock/gmock.h || missing+=(libgmock-dev)
    has_header benchmark/benchmark.h || missing+=(libbenchmark-dev)
    command -v abidiff >/dev/null || helpful+=(abigail-tools) # compares the ABI of the C API
  fi
  if [[ " $* " = *" aarch64 "* ]]; then
    command -v aarch64-linux-gnu-g++ >/dev/null || missing+=(g++-aarch64-linux-gnu)
    command -v qemu-aarch64 >/dev/null || missing+=(qemu-user)
    [ -d /usr/src/googletest ] || missing+=(googletest)
  fi
  command -v ccache >/dev/null || helpful+=(ccache)
  if [[ " $* " = *" fuzzing "* ]]; then
    command -v clang++-19 >/dev/null || helpful+=("clang-19 libclang-rt-19-dev")
  fi
  [ $((${#missing[@]} + ${#helpful[@]})) -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing ${missing[*]} ${helpful[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local packages
    logged apt-get update -qq || true
    if logged apt-get install -y -qq --no-install-recommends "${missing[@]}"; then
      for packages in "${helpful[@]}"; do
        # shellcheck disable=SC2086  # several names
        logged apt-get install -y -qq --no-install-recommends $packages || true
      done
      return 0
    fi
  fi
  [ ${#missing[@]} -eq 0 ] && return 0
  die "missing: ${missing[*]}. On Debian or Ubuntu: sudo apt-get install ${missing[*]}"
}

# python_environment [torch]: the environment with the build requirements; `torch` comes first and
# with an exact version, so that no later package draws another build of it. Python makes the bytecode
# of what is imported; pip would make that of every file.
python_environment() {
  local python
  python="$(find_python)"
  if [ ! -x "$VENV/bin/python" ]; then
    [ -n "$python" ] || die "Python 3.11 or later is needed (set PYTHON=...)"
    say "virtual environment $VENV ($python)"
    "$python" -m venv "$VENV" || die "$python -m venv failed"
  fi
  PYTHON="$VENV/bin/python"
  export PYTHON PATH="$VENV/bin:$PATH" PIP_DISABLE_PIP_VERSION_CHECK=1
  unset PYTHONDONTWRITEBYTECODE # each process would compile all that it imports
  local requires
  mapfile -t requires < <("$PYTHON" - "$ROOT/pyproject.toml" <<'PY'
import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], sep="\n")
PY
)
  [ ${#requires[@]} -gt 1 ] || die "no build requirements in pyproject.toml"
  if [[ " $* " = *" torch "* ]]; then
    say "torch"
    logged "$PYTHON" -m pip install -q --no-compile "torch==${MLC_NATIVE_TORCH:-2.13.0}" || die "torch could not be installed"
  fi
  say "build requirements"
  logged "$PYTHON" -m pip install -q --no-compile "${requires[@]}" || die "build requirements could not be installed"
}

# install_package [extras]: editable, from the shared build directory; output only when it fails.
install_package() {
  say "building and installing mlc_native (log: build/install.log)"
  mkdir -p "$ROOT/build"
  if ! with_progress "$ROOT/build/install.log" \
      "$PYTHON" -m pip install -v --no-compile --no-build-isolation -e "$ROOT${1:-}"; then
    tail -n 80 "$ROOT/build/install.log"
    die "the build failed (see above, or build/install.log)"
  fi
}
