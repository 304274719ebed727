"""Model folders for the fake model of tests/cpp/fake_model, and where its library is.

The tokenizer has one token per byte, and a token's id is its byte; 256 is the end of a sequence.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EOS = 256
VOCAB_SIZE = 257
CHAT_TEMPLATE = (
    "{% for m in messages %}"
    "{% if m.role == 'forbidden' %}{{ raise_exception('no such role') }}{% endif %}"
    "{{ m.role }}: {{ m.content }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def find_fake_model_lib() -> str:
    """The library of the fake model; see find_test_library."""
    return find_test_library("libmlc_native_fake_model.so", "MLC_NATIVE_FAKE_MODEL_LIB")


def find_test_library(name: str, variable: str) -> str:
    """The library that $variable names, else the package's, else that of the newest build."""
    if variable in os.environ:
        return os.environ[variable]
    installed = ROOT / "mlc_native" / "lib" / name
    if installed.is_file():
        return str(installed)
    build = Path(os.environ.get("MLC_NATIVE_BUILD_DIR", ROOT / "build"))
    found = sorted(build.rglob(name), key=lambda path: path.stat().st_mtime)
    assert found, f"no {name} below {build}: build with MLC_NATIVE_BUILD_TESTS=1"
    return str(found[-1])


def byte_characters() -> dict[int, str]:
    """GPT-2's character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + i) for i, byte in enumerate(others)
    }


def write_tokenizer(folder: Path) -> None:
    """A byte-level tokenizer.json whose token ids are bytes. It is written without the package
    tokenizers, which some Pythons do not have.
    """
    vocab = {character: byte for byte, character in byte_characters().items()}
    byte_level = {"type": "ByteLevel", "trim_offsets": True}
    of_a_token = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    parts = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": EOS, "content": "<|end|>", **of_a_token, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "add_prefix_space": False, "use_regex": False},
        "post_processor": None,
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {"type": "BPE", "unk_token": None, "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")


def write_model(
    folder: Path,
    *,
    answer: str | None = None,
    chat_template: str | None = CHAT_TEMPLATE,
    **fake: Any,
) -> str:
    """A model folder. ``answer``: what the model says to everything, then it ends."""
    folder.mkdir(parents=True)
    if answer is not None:
        fake["script"] = [*answer.encode(), EOS]
    # With a peak of 40 a draw at temperature 1 is as good as greedy.
    settings = {"vocab_size": VOCAB_SIZE, "eos_token_id": EOS, "peak": 40, **fake}
    config = {"architectures": ["Fake"], "eos_token_id": EOS, "fake": settings}
    (folder / "config.json").write_text(json.dumps(config))
    tokenizer_config: dict[str, Any] = {"eos_token": "<|end|>"}
    if chat_template is not None:
        tokenizer_config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config))
    write_tokenizer(folder)
    return str(folder)
