"""Many prompts at once, the answers in their order.

python examples/batch.py < questions.txt     # a question per line; a JSON object per answer
python examples/batch.py path/to/checkpoint --max-tokens 200 < questions.txt
"""

from __future__ import annotations

import argparse
import json
import sys

from mlc_native import SyncMLCEngine
from mlc_native.protocol.generation_config import GenerationConfig


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers to the questions on standard input.")
    parser.add_argument("model", nargs="?", default="demo", help="model folder or hub id")
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()
    questions = [line.strip() for line in sys.stdin if line.strip()]

    # Mode "server" runs as many sequences at a time as memory allows; the others wait inside the
    # engine. SyncMLCEngine needs no threads: generate() steps it until the last answer is complete.
    engine = SyncMLCEngine(arguments.model, mode="server")
    assert engine.conv_template is not None, "this model has no chat template"
    prompts = [
        engine.conv_template.render([{"role": "user", "content": question}])
        for question in questions
    ]
    config = GenerationConfig(max_tokens=arguments.max_tokens, temperature=0)
    texts, _ = engine.generate(prompts, config)
    # texts[i] holds the n answers to prompt i; here n is 1.
    for question, [answer] in zip(questions, texts, strict=True):
        print(json.dumps({"question": question, "answer": answer}))


if __name__ == "__main__":
    main()
