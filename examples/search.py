"""The lines of a text that a question is about, the best first.

python examples/search.py "Where is Rome?" < lines.txt
python examples/search.py "Where is Rome?" --model Qwen/Qwen3-Embedding-0.6B --top 3 < lines.txt

The demo model was not trained for it: it finds lines that end alike.
"""

from __future__ import annotations

import argparse
import sys
from operator import mul

from mlc_native import MLCEngine


def main() -> None:
    parser = argparse.ArgumentParser(description="Searches the lines of standard input.")
    parser.add_argument("question")
    parser.add_argument("--model", default="demo", help="model folder or hub id")
    parser.add_argument("--top", type=int, default=5, help="lines to show; default 5")
    arguments = parser.parse_args()
    lines = [line.strip() for line in sys.stdin if line.strip()]

    with MLCEngine(arguments.model) as engine:
        # Models for search have a prompt for questions, such as "Instruct: ... Query: ".
        prompt = "query" if "query" in engine.embedding_prompts.names else None
        asked = engine.embeddings.create(input=arguments.question, prompt_name=prompt)
        found = engine.embeddings.create(input=lines)
    question = asked.data[0].embedding
    # Embeddings have length 1, so the product is the cosine of the angle.
    scores = [sum(map(mul, question, each.embedding)) for each in found.data]
    for score, line in sorted(zip(scores, lines, strict=True), reverse=True)[: arguments.top]:
        print(f"{score:.3f} {line}")


if __name__ == "__main__":
    main()
