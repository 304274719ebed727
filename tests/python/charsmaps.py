"""Tables of replacements as SentencePiece writes them ("precompiled_charsmap")."""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, field

_LEAF = 1 << 8


@dataclass
class _Node:
    children: dict[int, _Node] = field(default_factory=dict)
    value: int | None = None


def charsmap(replacements: dict[str, str]) -> str:
    """The base64 of a double array (darts-clone's units) and the texts that follow it."""
    results = bytearray()
    root = _Node()
    for text, result in replacements.items():
        node = root
        for byte in text.encode():
            node = node.children.setdefault(byte, _Node())
        node.value = len(results)
        results += result.encode() + b"\0"
    units: dict[int, int] = {0: 0}
    queue = [(root, 0)]
    base = 1
    while queue:
        node, at = queue.pop()
        labels = sorted(node.children) + ([0] if node.value is not None else [])
        if not labels:
            continue
        while any(base ^ label in units for label in labels) or (at ^ base) >= 1 << 21:
            base += 1
        units[at] |= (at ^ base) << 10 | (_LEAF if node.value is not None else 0)
        for label in labels:
            units[base ^ label] = label
        if node.value is not None:
            units[base] = node.value | 1 << 31
        queue += [(child, base ^ label) for label, child in node.children.items()]
    size = (max(units) | 255) + 1
    words = [units.get(i, 0) for i in range(size)]
    data = struct.pack(f"<I{size}I", 4 * size, *words)
    return base64.b64encode(data + bytes(results)).decode()
