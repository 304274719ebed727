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
install_package "[chat]"
model="${MLC_NATIVE_DEMO_MODEL:-$ROOT/mlc_native/demo_model}"

say "mlc-native chat $model"
if [ $# -eq 0 ] && [ -t 0 ]; then
  mlc-native chat "$model"
else
  [ $# -gt 0 ] || set -- "What is 2 + 2?" "What is the capital of France?" "Spell cat."
  printf '%s\n' "$@" | mlc-native chat --echo "$model"
fi

say "what next"
cat <<END
Activate the environment:   source ${VENV#"$ROOT/"}/bin/activate
Chat with the demo model:   mlc-native chat demo
With a checkpoint of yours: mlc-native chat FOLDER    (Hugging Face format, or a name on the Hub)
From Python:
    from mlc_native import MLCEngine
    engine = MLCEngine("demo")
    print(engine.chat.completions.create(messages=[{"role": "user", "content": "Spell cat."}]))
END
