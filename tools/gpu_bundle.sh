#!/usr/bin/env bash
# Puts into DIR what tools/gpu_check.sh needs on a machine without a network, for its Python X.Y:
#
#   tools/gpu_bundle.sh DIR [X.Y] [--prebuilt]    (default: the version of PYTHON)
#
# wheels/      what such machines may lack beside torch and transformers
# googletest/  sources of the test framework, unless --prebuilt
# prebuilt/    with --prebuilt: the package for CPython 3.12 and later with CUDA, and the CUDA tests and
#              benchmarks, all for compute capability 9.0 (MLC_NATIVE_GPU_ARCHITECTURES: others). They
#              run on a system at least as new as this one. Needs nvcc and a CPython from 3.12 on
#              (MLC_NATIVE_PYTHON312).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
PATH=$PATH:/usr/local/cuda/bin
dir=${1:?usage: tools/gpu_bundle.sh DIR [X.Y] [--prebuilt]}
shift
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
prebuilt=0
for argument in "$@"; do
  [ "$argument" = --prebuilt ] && prebuilt=1 || version=$argument
done

rm -rf "$dir"/{wheels,googletest,prebuilt} # no wheel in two versions
mkdir -p "$dir/wheels"
platforms=()
for glibc in 2_17 2_27 2_28 2_31 2_34; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
download=("$python" -m pip download -q --only-binary=:all: --python-version "$version"
  --implementation cp "${platforms[@]}" --platform manylinux2014_x86_64 -d "$dir/wheels")
"${download[@]}" --no-deps nlohmann-json prometheus-client "apache-tvm-ffi>=0.1.15,<0.2" \
  "xgrammar>=0.2.8,<0.2.10"
# With what they need, in versions that fit.
"${download[@]}" "pydantic>=2" jsonschema jinja2 rich tqdm httpx
"${download[@]}" pytest "pytest-asyncio>=0.24" hypothesis

if [ $prebuilt = 0 ]; then
  cp -r /usr/src/googletest "$dir"
else
  environment=build/gpu_check/python312
  [ -x $environment/bin/python ] || "${MLC_NATIVE_PYTHON312:-python3.12}" -m venv $environment
  mapfile -t requires < <($environment/bin/python -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")')
  $environment/bin/python -m pip install -q "${requires[@]}"
  PATH=$PWD/$environment/bin:$PATH # a system's cmake may be too old for the stable ABI
  mkdir -p "$dir/prebuilt"
  torch=$("$python" -c 'import importlib.util as u
print(u.find_spec("torch").submodule_search_locations[0])') # of any version: the ops want its stable ABI
  MLC_NATIVE_STABLE_ABI=1 CMAKE_ARGS="-DMLC_NATIVE_OPS=ON -DMLC_NATIVE_TORCH_ROOT=$torch \
    -DMLC_NATIVE_CUDA=ON -DMLC_NATIVE_CUDA_ARCHITECTURES=${MLC_NATIVE_GPU_ARCHITECTURES:-90-real} \
    ${CMAKE_ARGS:-}" $environment/bin/python -m pip wheel -q --no-deps --no-build-isolation \
    -w "$dir/prebuilt" .
  build=build/cp312-abi3-$($environment/bin/python -c 'import sysconfig; print(sysconfig.get_platform())')
  cmake -S csrc -B "$build" -DMLC_NATIVE_BUILD_TESTS=ON >/dev/null
  programs=(cuda_device_test cuda_kernels cuda_micro)
  cmake --build "$build" --target "${programs[@]}"
  for program in "${programs[@]}"; do
    strip -o "$dir/prebuilt/$program" "$(find "$build" -type f -name "$program" -print -quit)"
  done
fi
du -sh "$dir"/*
