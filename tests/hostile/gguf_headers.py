"""Hostile GGUF files: the header of a small model with a few wrong bytes, some of them cut short.

A case is the seed of its damage. The file is loaded as a model and as a tokenizer. Both work, or a
typed error names a field; no file stays open, and nothing new lies in the folder.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

from hostile.frame import Case, HostileClass

_ROOT = Path(__file__).resolve().parents[2]
_SOURCE = _ROOT / "mlc_native" / "demo_model" / "draft"
_COUNT = 5000
# In this child, set by ``_prepared``.
_state: dict[str, Path] = {}
_content: dict[str, bytes] = {}


def hostile_class() -> HostileClass:
    """The class."""
    cases = [Case(f"header {seed}", seed) for seed in range(_COUNT)]
    return HostileClass(
        "gguf_headers", cases, _attempt, cpu_s=2, memory_mib=64, sample=100, prepared=_prepared
    )


@contextmanager
def _prepared() -> Iterator[None]:
    """The file, which has been loaded once."""
    sys.path[:0] = [str(_ROOT / "tests" / "python" / "models")]
    from gguf import GGMLQuantizationType as Type
    from gguf_files import write_gguf

    with tempfile.TemporaryDirectory(prefix="mlc-native-hostile-") as folder:
        path = Path(folder) / "x.gguf"
        kinds = cycle([Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.MXFP4, Type.Q5_1])
        write_gguf(_SOURCE, path, lambda _name: next(kinds), pre="smollm")
        _state["path"] = path
        _content["whole"] = path.read_bytes()
        assert _load(path) == "served"
        yield


def _damaged(seed: int) -> bytes:
    whole = _content["whole"]
    header = whole.rindex(b"ffn_down.weight") + 64
    chance = random.Random(seed)
    content = bytearray(whole)
    for _ in range(chance.randint(1, 3)):
        content[chance.randrange(header)] = chance.randrange(256)
    if chance.random() < 0.1:
        del content[chance.randrange(len(content)) :]
    return bytes(content)


def _attempt(seed: int) -> str:
    path = _state["path"]
    path.write_bytes(_damaged(seed))
    before = _left_behind(path)
    outcome = _load(path)
    after = _left_behind(path)
    return outcome if after == before else f"{outcome}, and left behind: {after} after {before}"


def _left_behind(path: Path) -> tuple[int, list[str]]:
    """The number of open files, and what is in the folder."""
    return len(os.listdir("/proc/self/fd")), sorted(os.listdir(path.parent))


def _load(path: Path) -> str:
    from mlc_native._core import testing
    from mlc_native.errors import MAX_MESSAGE, LoadError
    from mlc_native.tokenizers import Tokenizer

    try:
        testing.TestModel(str(path), strict_weights=False)
        Tokenizer(path)
    except LoadError as error:
        if len(str(error)) > MAX_MESSAGE + 10:
            return f"an error of {len(str(error))} characters: {str(error)[:100]}"
        return "refused" if error.field else f"an error without a field: {error}"
    return "served"
