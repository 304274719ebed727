"""TextEvent: every text is escaped as the json module does it."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlc_native._text_event import TextEvent

EXAMPLES = settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
ANY_TEXT = st.text(st.characters(exclude_categories=()))  # lone surrogates, too


def json_bytes(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def event_of(*names: str) -> TextEvent:
    """Objects that have the text under each of the names."""
    return TextEvent(*json_bytes(dict.fromkeys(names, "?")).split(b"?"))


@EXAMPLES
@given(ANY_TEXT)
def test_an_event_is_what_json_writes(text: str) -> None:
    for names in [("a",), ("a", "b")]:
        expected = dict.fromkeys(names, text)
        written = event_of(*names).write(text)
        assert written == json_bytes(expected)
        assert json.loads(written) == expected


def test_every_character() -> None:
    size = 1 << 12
    event = event_of("a")
    for first in range(0, 0x110000, size):
        text = "".join(map(chr, range(first, first + size)))
        # As JSON reads it: a high and a low surrogate next to each other are one character.
        assert json.loads(event.write(text)) == json.loads(json.dumps({"a": text}))
        assert event.write(text) == json_bytes({"a": text})


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("", b""),
        ('"\\/', b'\\"\\\\/'),
        ("\n\r\t\b\f\0\x1f\x7f", b"\\n\\r\\t\\b\\f\\u0000\\u001f\x7f"),
        ("\u2028\u00e9\U0001f914", "\u2028\u00e9\U0001f914".encode()),
        ("a\ud83e\n\udd14", b"a\\ud83e\\n\\udd14"),
    ],
)
def test_how_characters_are_written(text: str, written: bytes) -> None:
    assert TextEvent(b"<", b">").write(text) == b"<" + written + b">"


def test_parts_without_a_text() -> None:
    assert TextEvent(b"same").write("x") == b"same"
    assert TextEvent(b"", b"", b"").write("x\n") == b"x\\nx\\n"
