"""A chat with Anthropic's library: a plain answer, and a stream.

mlc-native serve demo
pip install anthropic
python examples/clients/anthropic_messages.py --url http://127.0.0.1:8000
"""

from __future__ import annotations

import argparse
import os

import anthropic

EXACT = {"temperature": 0}  # the library has no argument of this name


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat with Anthropic's library.")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--model", default="demo")
    args = parser.parse_args()
    client = anthropic.Anthropic(
        base_url=args.url, api_key=os.environ.get("MLC_NATIVE_API_KEY", "none")
    )
    question: anthropic.types.MessageParam = {
        "role": "user",
        "content": "What is the capital of France?",
    }

    plain = client.messages.create(
        model=args.model, max_tokens=100, messages=[question], extra_body=EXACT
    )
    for block in plain.content:
        if block.type == "text":
            print(block.text)

    with client.messages.stream(
        model=args.model, max_tokens=100, messages=[question], extra_body=EXACT
    ) as stream:
        for text in stream.text_stream:
            print(text, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
