"""Microseconds per KB that texts take to become tokens: in C++ and in the tokenizers package.

``python bench/encode.py``: one thread each, the tokenizers of ``tests/python/tokenizer_kinds.py``
and a text of this repository. Tokenizers whose text is encoded again find their words in the
package's cache; C++ has none.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["RAYON_NUM_THREADS"] = "1"
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "python"))
NAMES = ["gpt_2", "llama_3", "qwen_2", "o200k", "deepseek", "llama_2", "gemma", "t5"]
SECONDS = 0.5


def seconds(encode: Callable[[str], Any], text: str) -> float:
    """The least time of several calls."""
    best, until = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        start = time.perf_counter()
        encode(text)
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Prints a line per kind."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    import tokenizer_kinds
    from tokenizers import Tokenizer

    from mlc_native import _core

    files = sorted((ROOT / "docs").glob("*.md"))
    text = "".join(file.read_text() for file in files)[: 1 << 17]
    print(f"{'':10} {'C++':>8} {'tokenizers':>10} {'200 bytes: C++':>15} {'tokenizers':>10}")
    for name in NAMES:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "tokenizer.json")
            getattr(tokenizer_kinds, name)().save(path)
            ours, theirs = _core.Tokenizer.from_tokenizer_json(path)[0], Tokenizer.from_file(path)
        assert ours is not None
        line = f"{name:10}"
        for part in (text, text[5000:5200]):
            size = len(part.encode()) / 1024
            line += f" {seconds(ours.encode, part) * 1e6 / size:12.1f}"
            line += f" {seconds(theirs.encode, part) * 1e6 / size:10.1f}"
        print(line)


if __name__ == "__main__":
    main()
