"""Writes csrc/tokenizer/unicode_ranges.inc: the non-ASCII letters, numbers and spaces of Unicode.

What the pre-tokenizers' regular expressions call \\p{L}, \\p{N} and \\s. Run it again for another
version of Unicode (Python's): ``python tools/make_unicode_ranges.py``.
"""

from __future__ import annotations

import sys
import unicodedata
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "csrc" / "tokenizer" / "unicode_ranges.inc"
SPACES = {0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}


def kind_of(code_point: int) -> str | None:
    """The class of a character, None for the rest (and for surrogates)."""
    if code_point in SPACES:
        return "kSpace"
    return {"L": "kLetter", "N": "kNumber"}.get(unicodedata.category(chr(code_point))[0])


def ranges() -> list[tuple[int, int, str]]:
    """(first, last, class), ascending, neighbours of one class joined."""
    found: list[tuple[int, int, str]] = []
    for code_point in range(0x80, sys.maxunicode + 1):
        kind = kind_of(code_point)
        if kind is None:
            continue
        if found and found[-1][1] == code_point - 1 and found[-1][2] == kind:
            found[-1] = (found[-1][0], code_point, kind)
        else:
            found.append((code_point, code_point, kind))
    return found


def main() -> None:
    """Writes the file."""
    lines = [f"// Unicode {unicodedata.unidata_version}. Written by tools/make_unicode_ranges.py."]
    line = ""
    for first, last, kind in ranges():
        item = f"{{0x{first:X}, 0x{last:X}, {kind}}},"
        if len(line) + 1 + len(item) > 100:
            lines.append(line)
            line = ""
        line = f"{line} {item}".strip()
    lines.append(line)
    OUTPUT.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
