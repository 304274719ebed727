"""Many prompts at once, the answers in their order.

python examples/batch.py < questions.txt     # a question per line; a JSON object per answer
python examples/batch.py path/to/checkpoint --max-tokens 200 < questions.txt
"""

from __future__ import annotations

import argparse
import json
import sys

from mlc_native import MLCEngine


def main() -> None:
    parser = argparse.ArgumentParser(description="Answers to the questions on standard input.")
    parser.add_argument("model", nargs="?", default="demo", help="model folder or hub id")
    parser.add_argument("--max-tokens", type=int, default=64)
    arguments = parser.parse_args()
    questions = [line.strip() for line in sys.stdin if line.strip()]

    # Mode "server" runs as many sequences at a time as memory allows; the others wait.
    with MLCEngine(arguments.model, mode="server") as engine:
        chats = [[{"role": "user", "content": question}] for question in questions]
        results = engine.generate(chats, max_tokens=arguments.max_tokens, temperature=0)
    for question, result in zip(questions, results, strict=True):
        if result.error is None:
            print(json.dumps({"question": question, "answer": result.text}))
        else:  # of this question only
            print(json.dumps({"question": question, "error": str(result.error)}))


if __name__ == "__main__":
    main()
