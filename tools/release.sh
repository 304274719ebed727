#!/usr/bin/env bash
# Builds the wheel of a release: with the CUDA library for every supported architecture and as PTX for
# newer ones, and with the torch ops, which work with every torch from 2.10 on. Needs nvcc 12.8 or
# later, but no GPU.
#
#   tools/release.sh [DIR]   # default: dist
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/setup_env.sh

system_packages
python_environment torch
say "building the wheel"
CMAKE_ARGS="-DMLC_NATIVE_CUDA=ON -DMLC_NATIVE_CUDA_ARCHITECTURES=release -DMLC_NATIVE_OPS=ON ${CMAKE_ARGS:-}" \
  "$PYTHON" -m pip wheel --no-deps --no-build-isolation -w "${1:-dist}" .
