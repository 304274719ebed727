#!/usr/bin/env bash
# Compiles the core for AArch64 with Debian's cross compiler and runs tests in qemu-user, every
# kernel test on every NEON level. Installs what is missing of both, as root.
#
#   tools/cross_aarch64.sh [--short] [TARGET...]
#   tools/cross_aarch64.sh mlc_native             # only compile the library
#
# Default: the tests of kernels, kv, sampling and support; not with --short also the library, compiled.
# --short, for CI, leaves out what takes qemu minutes and does not depend on the machine: the portable
# kernels, which no AArch64 machine chooses, the longest random tests of code without kernels or floats,
# and statistics of what other tests here check exactly. x86-64 runs them with the same seeds.
# qemu runs another machine's instructions, not its memory order: races need a real one.
set -eu
cd "$(dirname "$0")/.."
if [ "$(uname -m)" = aarch64 ]; then
  echo "this machine is AArch64: its own build and tests are the check"
  exit
fi
. tools/setup_env.sh
system_packages aarch64

# 20,000 draws from a row of 30,000: minutes in qemu.
left_out='Sampler.TopPOfAFlatRow*'
library=mlc_native
if [ "${1:-}" = --short ]; then
  left_out+=':*/portable:Utf8.ReplacesAsTheOracleDoes:PrefixCacheSimulation.*'
  left_out+=':RegularFileTest.JsonFilesAreLimited*:*SamplerDistribution.*'
  left_out+=':ErrorFeedback.LeavesLessThanHalf*'
  library=
  shift
fi
export GTEST_FILTER="-$left_out"

build=build/aarch64
targets=("$@")
[ $# -gt 0 ] || targets=(kernels_test kv_test sampling_test support_test $library)
configure() { # configure SOURCE BUILD [OPTIONS...]
  cmake -S "$1" -B "$2" -G Ninja -Wno-dev "${@:3}" \
    -DCMAKE_TOOLCHAIN_FILE="$ROOT/csrc/cmake/toolchains/aarch64-linux-gnu.cmake"
}
quietly() { # the output of a command only when it fails
  "$@" >"$build/log" 2>&1 || { tail -n 60 "$build/log"; return 1; }
}
googletest() { # from source: there is no package of it for another machine
  configure /usr/src/googletest $build/googletest -DCMAKE_INSTALL_PREFIX="$ROOT/$build/root" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER_LAUNCHER="$(command -v ccache || true)" \
    -DCMAKE_DISABLE_FIND_PACKAGE_PythonInterp=ON -DCMAKE_DISABLE_FIND_PACKAGE_Python=ON
  cmake --build $build/googletest -j "$(nproc)" --target install
}
core() {
  configure csrc $build/core -DCMAKE_FIND_ROOT_PATH="$ROOT/$build/root" \
    -DMLC_NATIVE_PYTHON=OFF -DMLC_NATIVE_WITH_GRAMMAR=OFF \
    -DMLC_NATIVE_BUILD_TESTS=ON ${PYTHON:+-DPython_EXECUTABLE="$PYTHON"}
  cmake --build $build/core -j "$(nproc)" --target "${targets[@]}"
}

mkdir -p $build
[ -d $build/root ] || quietly googletest
quietly core
tests="$(printf '%s\n' "${targets[@]}" | grep '_test$' | paste -sd '|')"
[ -z "$tests" ] || ctest --test-dir $build/core -j "$(nproc)" --timeout 3600 \
  --output-on-failure --no-tests=error -R "^($tests)(_[0-9]+)?\$"
