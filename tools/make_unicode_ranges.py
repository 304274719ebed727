"""Writes csrc/tokenizer/*.inc: what the tokenizers package knows of Unicode's characters.

Its parts follow different versions of Unicode, none of which is Python's, so the package is asked
about every character: ``python tools/make_unicode_ranges.py``. What it cannot be asked (canonical
decompositions step by step, grapheme clusters) is Python's, as far as the package has it.

A table is a text of numbers. A number is written in digits of 5 bits, the lowest first, each as one
character of base64; 32 is added to all digits except the last one.
"""

from __future__ import annotations

import argparse
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import regex
from tokenizers import Regex, normalizers, pre_tokenizers

FOLDER = Path(__file__).parents[1] / "csrc" / "tokenizer"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co"
CHARACTERS = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
CHUNK = 4096  # characters of one question

Ranges = list[tuple[int, int]]


def number(value: int) -> str:
    """One number of a table."""
    text = ""
    while value >= 32:
        text += DIGITS[32 + value % 32]
        value //= 32
    return text + DIGITS[value]


def zigzag(value: int) -> int:
    """A number of any sign as one that is not negative."""
    return 2 * value if value >= 0 else -2 * value - 1


def joined(found: Iterable[int]) -> Ranges:
    """Ascending code points as ranges."""
    ranges: Ranges = []
    for code_point in found:
        if ranges and ranges[-1][1] == code_point - 1:
            ranges[-1] = (ranges[-1][0], code_point)
        else:
            ranges.append((code_point, code_point))
    return ranges


def set_table(found: Iterable[int]) -> str:
    """A set of characters: of each range the gap before it and its length less 1."""
    text, end = "", 0
    for first, last in joined(found):
        text += number(first - end) + number(last - first)
        end = last + 1
    return text


def pieces(splitter: pre_tokenizers.PreTokenizer, between: str) -> Iterator[str]:
    """What a pre-tokenizer leaves of all characters, each between two others."""
    for at in range(0, len(CHARACTERS), CHUNK):
        text = between + between.join(CHARACTERS[at : at + CHUNK]) + between
        yield from (piece for piece, _ in splitter.pre_tokenize_str(text))


def by_pattern(pattern: str) -> list[int]:
    """The characters that a regular expression matches."""
    splitter = pre_tokenizers.Split(Regex(pattern), "removed")
    kept = set("".join(pieces(splitter, "")))
    return [ord(c) for c in CHARACTERS if c not in kept]


def isolated(splitter: pre_tokenizers.PreTokenizer) -> list[int]:
    """The characters that are cut off from letters."""
    found = set(pieces(splitter, "a"))
    return sorted(ord(piece) for piece in found if len(piece) == 1 and piece != "a")


def words() -> list[int]:
    """The characters that are of one word with letters."""
    found = {
        c for piece in pieces(pre_tokenizers.Whitespace(), "a") if len(piece) > 1 for c in piece
    }
    return sorted(map(ord, found))


def category_table() -> str:
    """Of each range the gap before it, its length less 1 and its category."""
    found: list[tuple[int, int, int]] = []
    for index, name in enumerate(CATEGORIES.split()):
        found += [(*pair, index) for pair in joined(by_pattern(rf"\p{{{name}}}"))]
    text, end = "", 0
    for first, last, index in sorted(found):
        text += number(first - end) + number(last - first) + number(index)
        end = last + 1
    return text


def changed(normalizer: normalizers.Normalizer) -> dict[int, str]:
    """What a normalizer makes of the characters that it changes."""
    results = ((c, normalizer.normalize_str(c)) for c in CHARACTERS)
    return {ord(c): result for c, result in results if result != c}


def map_table(mapping: dict[int, str]) -> str:
    """Of each character the gap before it, the number of characters it becomes, and their offsets
    from it."""
    text, end = "", 0
    for code_point, result in sorted(mapping.items()):
        text += number(code_point - end) + number(len(result))
        text += "".join(number(zigzag(ord(c) - code_point)) for c in result)
        end = code_point + 1
    return text


def is_hangul(code_point: int) -> bool:
    """Whether it is a syllable, which is decomposed by arithmetic."""
    return 0xAC00 <= code_point <= 0xD7A3


def canonical_step(code_point: int) -> str:
    """What a character is decomposed into at once: one or two characters."""
    return "".join(
        chr(int(part, 16)) for part in unicodedata.decomposition(chr(code_point)).split()
    )


def combining_table() -> str:
    """Of each character of a combining class the gap before it and the class."""
    forms = normalizers.NFD()
    text, end = "", 0
    for c in CHARACTERS:
        order = unicodedata.combining(c)
        if order == 0:
            continue
        pair = f"{c}\u0334" if order > 1 else f"\u0301{c}"
        if forms.normalize_str(f"a{pair}") == f"a{pair}":
            continue  # newer than the package's version
        text += number(ord(c) - end) + number(order)
        end = ord(c) + 1
    return text


def write(name: str, tables: dict[str, Callable[[], str]]) -> None:
    """Writes one file of tables."""
    lines = ["// Written by tools/make_unicode_ranges.py, which describes it."]
    for table, make in tables.items():
        text = make()
        lines.append(f"constexpr std::string_view {table} =")
        lines += [f'    "{text[at : at + 94]}"' for at in range(0, len(text), 94)]
        lines[-1] += ";"
    (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="ascii")


def clusters(kinds: str) -> Callable[[], str]:
    """The characters of some properties of grapheme clusters."""
    pattern = regex.compile("[" + "".join(rf"\p{{GCB={kind}}}" for kind in kinds.split()) + "]")
    return lambda: set_table(ord(c) for c in CHARACTERS if pattern.match(c))


def main() -> None:
    """Writes the files."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    write(
        "unicode_ranges.inc",
        {
            "kCategoryData": category_table,
            "kWordData": lambda: set_table(words()),
            "kPatternWordData": lambda: set_table(by_pattern(r"\w")),
            "kHanData": lambda: set_table(by_pattern(r"\p{Han}")),
            "kNumericData": lambda: set_table(isolated(pre_tokenizers.Digits())),
            "kPunctuationData": lambda: set_table(isolated(pre_tokenizers.Punctuation())),
            "kMarkData": lambda: set_table(changed(normalizers.StripAccents())),
            "kLowercaseData": lambda: map_table(changed(normalizers.Lowercase())),
            "kClusterControlData": clusters("CR LF Control"),
            "kClusterExtendData": clusters("Extend SpacingMark ZWJ"),
            "kClusterPrependData": clusters("Prepend"),
        },
    )
    canonical = {c: "" for c in changed(normalizers.NFD()) if not is_hangul(c)}
    compatible = {c: text for c, text in changed(normalizers.NFKD()).items() if not is_hangul(c)}
    steps = {c: canonical_step(c) for c in canonical}
    composes = normalizers.NFC()
    write(
        "normal_forms.inc",
        {
            "kCanonicalData": lambda: map_table(steps),
            "kNotComposedData": lambda: set_table(
                c for c in sorted(steps) if composes.normalize_str(chr(c)) != chr(c)
            ),
            "kCompatibleData": lambda: map_table(
                {c: text for c, text in compatible.items() if c not in canonical}
            ),
            "kCombiningData": combining_table,
        },
    )


if __name__ == "__main__":
    main()
