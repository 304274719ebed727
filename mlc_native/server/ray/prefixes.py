"""Which replica has seen the beginning of a prompt: keys of prompts, and a table of them.

A prompt is cut into blocks of characters. The key of a block stands for the text from the beginning
of the prompt to the end of the block, so two prompts share as many keys as they share blocks. The
table belongs to one event loop.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from typing import Any

BLOCK_CHARS = 256
MAX_BLOCKS = 512  # of a prompt
MAX_KEYS = 1 << 17  # of a table
_PROMPT_FIELDS = ("messages", "prompt", "input")

Key = bytes


def prompt_keys(body: bytes) -> tuple[Key, ...]:
    """The keys of the prompt in the JSON body of a request; none for another body."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(fields, dict):
        return ()
    prompt = next((fields[name] for name in _PROMPT_FIELDS if fields.get(name)), None)
    if prompt is None:
        return ()
    apart = [fields.get(name) for name in ("system", "cache_salt", "adapter")]
    return text_keys(_text([*apart, prompt]))


def _text(parts: Any) -> str:
    """JSON without the brackets at the end, which a longer prompt does not have there."""
    return json.dumps(parts, ensure_ascii=False).rstrip("]")


def text_keys(text: str) -> tuple[Key, ...]:
    """The keys of the whole blocks of a text."""
    keys = []
    running = hashlib.blake2b(digest_size=8)
    end = min(len(text) // BLOCK_CHARS, MAX_BLOCKS) * BLOCK_CHARS
    for i in range(0, end, BLOCK_CHARS):
        running.update(text[i : i + BLOCK_CHARS].encode("utf-8", "surrogatepass"))
        keys.append(running.digest())
    return tuple(keys)


class PrefixTable:
    """The keys that each replica has seen; the oldest ones are forgotten first."""

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._max_keys = max_keys
        self._replicas: OrderedDict[Key, set[Hashable]] = OrderedDict()

    def add(self, keys: Sequence[Key], replica: Hashable) -> None:
        """Notes that a replica has seen a prompt."""
        for key in reversed(keys):  # the beginning of a prompt is the last to be forgotten
            self._replicas.setdefault(key, set()).add(replica)
            self._replicas.move_to_end(key)
        while len(self._replicas) > self._max_keys:
            self._replicas.popitem(last=False)

    def match(self, keys: Sequence[Key]) -> dict[Hashable, int]:
        """How many blocks of a prompt each replica has seen; replicas with none are left out."""
        lengths: dict[Hashable, int] = {}
        for i, key in enumerate(keys):
            seen = {r for r in self._replicas.get(key, ()) if lengths.get(r, 0) == i}
            if not seen:
                break
            lengths.update(dict.fromkeys(seen, i + 1))
        return lengths

    def keep(self, replicas: Collection[Hashable]) -> None:
        """Forgets all other replicas."""
        for key in list(self._replicas):
            self._replicas[key].intersection_update(replicas)
            if not self._replicas[key]:
                del self._replicas[key]


def choose(lengths: dict[Hashable, int], loads: dict[Hashable, int], slack: int) -> Hashable | None:
    """The replica with the longest prefix, unless it has ``slack`` more requests than another.

    Args:
        lengths: blocks of the prompt that each replica has seen.
        loads: requests of each candidate.

    Returns None if no candidate has seen the prompt or all that have are busy.
    """
    least = min(loads.values(), default=0)
    fit = [r for r in lengths if r in loads and loads[r] <= least + slack]
    return max(fit, key=lambda r: (lengths[r], -loads[r]), default=None)
