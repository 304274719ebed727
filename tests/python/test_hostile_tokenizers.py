"""Tokenizers that panic, fail or take long: an error of the family, before a text is encoded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_model import write_tokenizer

from mlc_native import SyncMLCEngine
from mlc_native.errors import InvalidRequest, LoadError
from mlc_native.tokenizers import Tokenizer
from mlc_native.tokenizers.linear_regex import is_linear

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LINEAR = {
    "GPT-2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "Llama 3": _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    + _SPACES,
    "cl100k": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "o200k": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES,
    "Tekken": rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + _SPACES,
    "DeepSeek V3": r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES,
    "BLOOM": " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+",
    "Falcon": "[0-9][0-9][0-9]",
    "digits": r"\p{N}{1,3}",
    "Chinese": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "lines": r"[\r\n]",
    "words": r"\s?\p{L}+",
    "spaces": " {2,}",
    "SentencePiece": r"▁+[^▁]*",
    "intersections": r"[\p{L}&&[^\p{Han}]]+|\s+",
}
NOT_LINEAR = [
    *(r"(a+)+$", r"(a|a)*b", r"(a|aa)+", r"(a*)*", r"(.*)*x", r"(?:a+){2}", r"((a+)b?)*"),
    *(r"a+b", r"\s+$", r"a*a*b", r".*x", r"\w+\s\w+", r"x*y|z", r"a{1,}b", r"a+?b", r"a+(?!b)"),
    *(r"\s*[\r\n]+", r"\s*[\r\n]+|\s|\s+", r"a+b|c|a+", r"a+b+c|a+", r"ba+b|a+"),
    *(r"(a?){50}a{50}", "a?" * 30 + "a" * 30, r"a{2000}", r"((a{1,500}){1,500})", "(a|b|c){9}"),
    *(r"(?=a+)b", r"(?<=a)b", r"(?>a+)", r"(?<n>a)\g<n>", r"(a)\1", r"\k<n>", r"(?i)a", r"a**"),
    *("(", "[", "\\", "*a", "a)", "(?", "[[a]", "a{1", "\\p{L"),
]


@pytest.mark.parametrize("pattern", LINEAR.values(), ids=LINEAR.keys())
def test_patterns_of_families_are_linear(pattern: str) -> None:
    assert is_linear(pattern)


@pytest.mark.parametrize("pattern", NOT_LINEAR)
def test_patterns_that_are_not_known_to_be_linear(pattern: str) -> None:
    assert not is_linear(pattern) or pattern in ("a{1", "\\p{L")  # which are literal texts


@pytest.mark.parametrize("pattern", [r"\s+$", r"[ab]+(?!c)", r"\p{L}{2,}\z", r"a+(?=b)$"])
def test_a_run_in_front_of_a_look_is_linear_where_it_is_tried_once(pattern: str) -> None:
    assert is_linear(pattern, skips_runs=True)
    assert not is_linear(pattern)


@pytest.mark.parametrize("pattern", ["", r"a+b", r"(a+)+$", r"ba+$", r"\s+$|a+b", r"a+\b", r"a+?$"])
def test_other_patterns_are_as_before(pattern: str) -> None:
    assert is_linear(pattern, skips_runs=True) == is_linear(pattern)


def test_the_end_of_a_text_in_deepseeks_words(tmp_path: Path) -> None:
    """Their first tokenizers split with this expression, which had been refused."""
    tokenizer = Tokenizer(write(tmp_path, pre_tokenizer=split(r"\s+$")))
    for text in ("a  b  ", "  ", "a \n b", " " * 100_000 + "a"):
        assert tokenizer.decode(tokenizer.encode(text)) == text
    library = tokenizer.library
    for text in ("a  b  ", "a \n b \n", "\t\n"):
        assert tokenizer.encode(text) == library.encode(text, add_special_tokens=False).ids


def write(folder: Path, **parts: Any) -> Path:
    """A folder whose tokenizer has other parts."""
    write_tokenizer(folder)
    path = folder / "tokenizer.json"
    fields = json.loads(path.read_text())
    fields.update(parts)
    path.write_text(json.dumps(fields))
    return folder


def split(pattern: str) -> dict[str, Any]:
    return {
        "type": "Sequence",
        "pretokenizers": [
            {
                "type": "Split",
                "pattern": {"Regex": pattern},
                "behavior": "Isolated",
                "invert": False,
            },
            {
                "type": "ByteLevel",
                "add_prefix_space": False,
                "trim_offsets": True,
                "use_regex": False,
            },
        ],
    }


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer", "decoder"])
def test_an_expression_that_may_take_long_is_refused(tmp_path: Path, part: str) -> None:
    replace = {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"}
    folder = write(tmp_path, **{part: split("(a+)+$") if part == "pre_tokenizer" else replace})
    with pytest.raises(LoadError, match=r"trust_tokenizer_regexes") as refused:
        Tokenizer(folder)
    assert "tokenizer.json" in str(refused.value.field)
    assert "'(a+)+$'" in str(refused.value)
    assert Tokenizer(folder, trust_regexes=True).encode("aab") != []


@pytest.mark.parametrize("pattern", LINEAR.values(), ids=LINEAR.keys())
def test_linear_expressions_take_little_time(tmp_path: Path, pattern: str) -> None:
    tokenizer = Tokenizer(write(tmp_path, pre_tokenizer=split(pattern)))
    start = time.process_time()
    for text in (" ", "\n ", "a", "A", "1", "'", "\u4e2d", "aA", " a"):
        assert len(tokenizer.encode(text * (60_000 // len(text)))) > 1000
    assert time.process_time() - start < 60  # 0.3 s; the square of the text would be hours


PANICS = {
    "FixedLength": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "charsmap": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAAAA"}},
    "merges": {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}},
    "no unknown token": {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}},
}


@pytest.mark.parametrize("parts", PANICS.values(), ids=PANICS.keys())
def test_a_panic_is_an_error_of_the_family(tmp_path: Path, parts: dict[str, Any]) -> None:
    write(tmp_path, **parts)
    with pytest.raises((LoadError, InvalidRequest)) as refused:
        Tokenizer(tmp_path).encode_batch(["abc", "z" * 10_000])
    assert len(str(refused.value)) < 1000


def test_a_panic_while_encoding_is_about_the_request(
    make_model: Callable[..., str], fake_lib: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(make_model())
    engine = SyncMLCEngine(str(folder), model_lib=fake_lib)
    assert engine.tokenizer is not None
    broken = engine.tokenizer.library
    monkeypatch.setattr(engine.tokenizer, "_native", None)  # as for a tokenizer that it lacks
    monkeypatch.setattr(engine.tokenizer, "library", _Panicking(broken))
    for call in (
        lambda: engine.generate(["abc"]),
        lambda: engine.create_request("r", "x" * 9000),
        lambda: engine.pin_prefix("abc"),
    ):
        with pytest.raises(InvalidRequest, match="cannot encode a text"):
            call()


class _Panicking:
    """Passes on to a tokenizer, except for texts."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, *_args: Any, **_options: Any) -> Any:
        raise PanicException("chunk size must be non-zero")

    encode_batch = encode


class PanicException(BaseException):
    """As the package raises it for a panic of Rust."""
