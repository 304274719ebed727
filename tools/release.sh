#!/usr/bin/env bash
# Builds the wheel of a release: with the CUDA library for every supported architecture and as PTX for
# newer ones. Needs nvcc 12.8 or later, but no GPU.
#
#   tools/release.sh [DIR]   # default: dist
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/setup_env.sh

system_packages
python_environment
say "building the wheel"
CMAKE_ARGS="-DMLC_NATIVE_CUDA=ON -DMLC_NATIVE_CUDA_ARCHITECTURES=release ${CMAKE_ARGS:-}" \
  "$PYTHON" -m pip wheel --no-deps --no-build-isolation -w "${1:-dist}" .
