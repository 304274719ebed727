"""A chat in the terminal.

python examples/chat.py                                # the demo model; an empty line ends
python examples/chat.py path/to/checkpoint
python examples/chat.py --prompt "What is a page?"     # one --prompt per turn, then the end
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from mlc_native import MLCEngine


def typed_lines() -> Iterator[str]:
    """What the user types, until an empty line or the end of the input."""
    while True:
        try:
            line = input("> ")
        except EOFError:
            return
        if not line:
            return
        yield line


def main() -> None:
    parser = argparse.ArgumentParser(description="A chat in the terminal.")
    parser.add_argument("model", nargs="?", default="demo", help="model folder or hub id")
    parser.add_argument("--prompt", action="append", help="a turn of the user")
    arguments = parser.parse_args()

    with MLCEngine(arguments.model) as engine:
        messages: list[dict[str, str]] = []
        for line in arguments.prompt or typed_lines():
            messages.append({"role": "user", "content": line})
            answer = ""
            # The engine still has the turns before this one: it computes only what is new.
            for chunk in engine.chat.completions.create(messages=messages, stream=True):
                text = chunk.choices[0].delta.content or ""
                print(text, end="", flush=True)
                answer += str(text)
            print()
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
