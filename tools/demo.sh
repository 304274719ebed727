#!/usr/bin/env bash
# Sets up, installs, and chats with the demo model that is part of the package: interactive on a
# terminal, else a few questions are answered. Enough by itself on a fresh machine.
#
#   tools/demo.sh [QUESTION...]
#
# MLC_NATIVE_DEMO_MODEL names another model folder (Hugging Face format).
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/setup_env.sh

system_packages
python_environment
install_package
model="${MLC_NATIVE_DEMO_MODEL:-$ROOT/mlc_native/demo_model}"

say "mlc-native chat $model"
if [ $# -eq 0 ] && [ -t 0 ]; then
  exec mlc-native chat "$model"
fi
[ $# -gt 0 ] || set -- "What is 2 + 2?" "What is the capital of France?" "Spell cat."
{
  printf '%s\n' "$@"
  echo /exit
} | mlc-native chat "$model"
