"""Texts that cannot fit are refused by their size, before they are tokenized."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_kinds import KINDS

from mlc_native import AsyncMLCEngine, MLCEngine, SyncMLCEngine
from mlc_native.errors import InvalidRequest
from mlc_native.tokenizers import Tokenizer
from mlc_native.tokenizers.text_bound import TextBound

DEMO = Path(__file__).resolve().parents[2] / "mlc_native/demo_model"
HUGE = "The capital of France is Paris. " * 700_000  # 22 MB


@pytest.fixture
def no_tokenizing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_tokenizer: Tokenizer, text: str) -> list[int]:
        raise AssertionError(f"{len(text)} characters are tokenized")

    monkeypatch.setattr(Tokenizer, "encode", refuse)


def check(refused: InvalidRequest) -> None:
    assert refused.code == "context_length_exceeded"
    bound = Tokenizer(DEMO).text_bound
    assert f"at least {bound.least_tokens(HUGE)} tokens in total" in str(refused)
    assert f"{len(HUGE)} bytes" in str(refused)


def test_every_entry_of_mlc_engine(no_tokenizing: None) -> None:
    with MLCEngine("demo", "cpu") as engine:
        entries: list[Callable[[], Any]] = [
            lambda: engine.completions.create(prompt=HUGE),
            lambda: engine.completions.create(prompt=[HUGE, "a"]),
            lambda: engine.pin_prefix(HUGE),
        ]
        for entry in entries:
            with pytest.raises(InvalidRequest) as refused:
                entry()
            check(refused.value)
        message = {"role": "user", "content": HUGE[:2_000_000]}  # more would stop the template
        with pytest.raises(InvalidRequest, match=r"at least .* tokens in total"):
            engine.chat.completions.create(messages=[message])
        (result,) = engine.generate([HUGE])
        assert isinstance(result.error, InvalidRequest)
        check(result.error)


def test_every_entry_of_the_other_engines(no_tokenizing: None) -> None:
    engine = SyncMLCEngine("demo", "cpu")
    entries: list[Callable[[], Any]] = [
        lambda: engine.create_request("a", HUGE),
        lambda: engine.generate([HUGE]),
        lambda: engine.pin_prefix(HUGE),
    ]
    for entry in entries:
        with pytest.raises(InvalidRequest) as refused:
            entry()
        check(refused.value)

    async def ask() -> None:
        async with AsyncMLCEngine("demo", "cpu") as engine:
            with pytest.raises(InvalidRequest) as refused:
                await engine.completions.create(prompt=HUGE)
            check(refused.value)
            with pytest.raises(InvalidRequest) as refused:
                await engine.pin_prefix(HUGE)
            check(refused.value)

    asyncio.run(ask())


def test_a_text_that_is_cut_is_tokenized() -> None:
    with MLCEngine("demo", "cpu") as engine:
        limit = engine.max_input_sequence_length
        text = "word " * limit
        answer = engine.completions.create(
            prompt=text, truncate_prompt_tokens=8, max_tokens=1, temperature=0
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 8


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_no_text_has_fewer_tokens(text: str) -> None:
    tokenizer = _demo_tokenizer()
    assert tokenizer.text_bound.least_tokens(text) <= len(tokenizer.encode(text))


_loaded: list[Tokenizer] = []


def _demo_tokenizer() -> Tokenizer:
    if not _loaded:
        _loaded.append(Tokenizer(DEMO))
    return _loaded[0]


def write_tokenizer(folder: Path, **parts: Any) -> Tokenizer:
    """The tokenizer of the demo model with other parts."""
    fields = json.loads((DEMO / "tokenizer.json").read_text())
    fields.update(parts)
    (folder / "tokenizer.json").write_text(json.dumps(fields))
    return Tokenizer(folder)


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
        {"normalizer": {"type": "Replace", "pattern": {"String": "aaaa"}, "content": "a"}},
        {"normalizer": {"type": "Replace", "pattern": {"Regex": "a+"}, "content": "a"}},
        {"pre_tokenizer": None},  # unknown characters are dropped, or all one token
    ],
    ids=str,
)
def test_what_may_shorten_a_text_has_no_bound(tmp_path: Path, parts: dict[str, Any]) -> None:
    bound = write_tokenizer(tmp_path, **parts).text_bound
    assert bound.most_bytes is None
    assert bound.least_tokens(HUGE) == 0


def test_composition_is_allowed_for(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path, normalizer={"type": "NFC"})
    jamo = "\u1112\u1161\u11ab" * 100  # nine bytes that become three
    assert tokenizer.text_bound.least_tokens(jamo) <= len(tokenizer.encode(jamo))


def test_white_space_around_added_tokens_is_not_counted(tmp_path: Path) -> None:
    fields = json.loads((DEMO / "tokenizer.json").read_text())
    for token in fields["added_tokens"]:
        token["lstrip"] = token["rstrip"] = True
    tokenizer = write_tokenizer(tmp_path, added_tokens=fields["added_tokens"])
    text = fields["added_tokens"][0]["content"] + " " * 100_000
    assert tokenizer.text_bound.least_tokens(text) <= len(tokenizer.encode(text)) == 1


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_both_ways_to_the_bound_agree(tmp_path: Path, kind: Callable[[], Any]) -> None:
    """C++ knows it where no token takes the white space around it."""
    kind().save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path, trust_regexes=True)
    fields = json.loads((tmp_path / "tokenizer.json").read_text())
    of_file = TextBound.of_file(fields, tokenizer.token_table)
    text = "a  b \n" * 100
    assert tokenizer.text_bound.least_tokens(text) == of_file.least_tokens(text)
