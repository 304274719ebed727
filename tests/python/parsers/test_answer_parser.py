"""Answers are read into content, reasoning and calls, the same for every way of cutting them."""

from __future__ import annotations

import json
import random
import re
import sys
from itertools import pairwise
from typing import Any

import pytest
from answer_texts import ANSWERS, Read, read, syntax
from hypothesis import given, settings
from hypothesis import strategies as st

from mlc_native.parsers.answer import AnswerParser, CallDelta, TextDelta
from mlc_native.parsers.catalog import TOOL_FORMATS
from mlc_native.parsers.reasoning import REASONING_FORMATS

CASES = [(name, text, expected) for name, cases in ANSWERS.items() for text, expected in cases]
THINK = REASONING_FORMATS["qwen3"]
MESSAGES = REASONING_FORMATS["harmony"]


def test_every_format_has_texts() -> None:
    assert set(ANSWERS) == set(TOOL_FORMATS)


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_reads(name: str, text: str, expected: Read) -> None:
    assert read(syntax(name), [text]) == expected


@pytest.mark.parametrize("is_certain", [False, True])
@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_every_cut_gives_the_same(name: str, text: str, expected: Read, is_certain: bool) -> None:
    of = syntax(name, is_certain=is_certain, reasoning=MESSAGES if name == "harmony" else THINK)
    whole = read(of, [text])
    assert read(of, text) == whole
    for i in range(len(text)):
        assert read(of, [text[:i], text[i:]]) == whole, i


@pytest.mark.parametrize(("name", "text", "expected"), CASES)
def test_certain_calls_are_the_same_calls(name: str, text: str, expected: Read) -> None:
    """A grammar forces calls to be well formed. Then nothing needs to be kept back."""
    if not any(begin in expected.content for begin in TOOL_FORMATS[name].begins):
        whole = read(syntax(name, is_certain=True), [text])
        assert whole.calls[: len(expected.calls)] == expected.calls


def test_a_value_that_is_cut_leaves_no_content() -> None:
    """Its last line end may belong to the closing text, so it is kept back."""
    text = "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</param \n"
    of = syntax("qwen3_coder", is_certain=True)
    assert read(of, [text]).content == ""
    assert read(of, text) == read(of, [text])


# -------------------------------------------------------------------------------- hostile texts


def pieces_of(name: str) -> list[str]:
    """Parts of the format's texts: its markers, its punctuation, and what stands between them."""
    found = {
        part for text, _ in ANSWERS[name] for part in re.split(r"([\s\"{}\[\]<>|=:,;()])", text)
    }
    found |= {text for text, _ in ANSWERS[name]}
    found |= {"<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant"}
    for begin in TOOL_FORMATS[name].begins:
        found |= {begin, begin[:-1], begin[1:]}
    return sorted(found | {"<think>", "</think>", "\\", '"', "'", "\n", " ", "é", "🙂"})


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_hostile_texts(name: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(pieces_of(name)), max_size=24)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    flags = st.fixed_dictionaries(
        {
            "is_certain": st.booleans(),
            "parallel": st.booleans(),
            "reasoning": st.sampled_from([None, THINK, MESSAGES]),
        }
    )
    fields: dict[str, Any] = data.draw(flags)
    fields["is_reasoning"] = fields["reasoning"] is not None and data.draw(st.booleans())
    of = syntax(name, **fields)
    whole = read(of, [text])
    ends = [0, *cuts, len(text)]
    assert read(of, [text[a:b] for a, b in pairwise(ends)]) == whole
    assert read(of, text) == whole
    if not fields["is_certain"]:
        for _, arguments in whole.calls:
            assert isinstance(json.loads(arguments), dict)
    if not whole.calls and of.reasoning is None:
        assert whole.content == text
    if not of.parallel:
        assert len(whole.calls) <= 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_answers_in_a_row(name: str, seed: int) -> None:
    """Many texts of a format behind each other, cut at random."""
    rng = random.Random(seed)
    text = "".join(rng.choice(ANSWERS[name])[0] for _ in range(30))
    of = syntax(name)
    whole = read(of, [text])
    for _ in range(10):
        cuts = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(200)))
        ends = [0, *cuts, len(text)]
        assert read(of, [text[a:b] for a, b in pairwise(ends)]) == whole


# ------------------------------------------------------------------------------ what is withheld


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_content_is_withheld_only_while_it_may_begin_a_call(name: str) -> None:
    begins = TOOL_FORMATS[name].begins
    text = "Is 2 < 3, [x] <t [TOOL <too <|pyth or not?  \n\n ok <"
    parser = AnswerParser(syntax(name))
    passed = ""
    for i, char in enumerate(text):
        passed += "".join(d.text for d in parser.feed(char) if isinstance(d, TextDelta))
        withheld = text[len(passed) : i + 1]
        assert passed + withheld == text[: i + 1]
        assert not withheld or any(begin.startswith(withheld) for begin in begins), withheld


def test_arguments_of_a_certain_call_arrive_in_pieces() -> None:
    parser = AnswerParser(syntax("hermes", is_certain=True))
    first = parser.feed('<tool_call>\n{"name": "weather", "arguments": ')
    assert [(d.index, d.name) for d in first if isinstance(d, CallDelta)] == [(0, "weather")]
    assert parser.feed('{"city": "Par') == [CallDelta(0, arguments='{"city": "Par')]
    assert parser.feed("is") == [CallDelta(0, arguments="is")]
    assert not parser.has_complete_calls
    assert parser.feed('"}}\n</tool_call>') == [CallDelta(0, arguments='"}')]
    assert parser.has_complete_calls
    assert parser.finish() == []


def test_a_call_that_is_not_certain_arrives_when_it_is_complete() -> None:
    parser = AnswerParser(syntax("hermes"))
    assert parser.feed('<tool_call>{"name": "time", "arguments": {}}</tool_call') == []
    begin, arguments = parser.feed(">")
    assert isinstance(begin, CallDelta)
    assert (begin.name, begin.arguments) == ("time", "")
    assert arguments == CallDelta(0, arguments="{}")


def test_a_cut_call_that_is_certain_keeps_its_arguments() -> None:
    result = read(
        syntax("hermes", is_certain=True),
        ['<tool_call>{"name": "weather", "arguments": {"city": "Pa'],
    )
    assert result == Read("", "", [("weather", '{"city": "Pa')])


@pytest.mark.parametrize("end", ["", ",", ', "argum', ', "arguments"', ', "arguments": '])
@pytest.mark.parametrize(
    "begin", ["<tool_call>", '<tool_call>{"name": "time"}</tool_call><tool_call>']
)
def test_a_call_that_is_cut_in_front_of_its_arguments_leaves_no_content(
    begin: str, end: str
) -> None:
    text = f'{begin}{{"name": "weather"{end}'
    whole = read(syntax("hermes", is_certain=True), [text])
    assert (whole.content, whole.calls[-1]) == ("", ("weather", ""))
    assert read(syntax("hermes", is_certain=True), text) == whole
    assert read(syntax("hermes"), [text]).content.endswith(f'"weather"{end}')  # may be no call


@pytest.mark.parametrize(
    ("name", "begin", "end"),
    [
        ("hermes", '<tool_call>{"name": "weather", "arguments": {"city": ', "}}</tool_call>"),
        ("pythonic", "[weather(city=", ")]"),
        ("gemma4", "<|tool_call>call:weather{city:", "}<tool_call|>"),
    ],
)
def test_control_characters_of_a_certain_call_are_escaped(name: str, begin: str, end: str) -> None:
    text = f'{begin}"a\n\t\x00b"{end}'
    whole = read(syntax(name, is_certain=True), [text])
    assert read(syntax(name, is_certain=True), text) == whole
    assert [json.loads(arguments) for _, arguments in whole.calls] == [{"city": "a\n\t\x00b"}]


def test_one_call_without_parallel_calls() -> None:
    call = '<tool_call>{"name": "time"}</tool_call>'
    assert read(syntax("hermes", parallel=False), [call * 3]) == Read("", "", [("time", "{}")])


@pytest.mark.parametrize(
    ("text", "of"),
    [
        ("<tool_call>" * 1000, syntax("hermes")),
        ("<think>" + "a \n" * 1000, syntax(None, reasoning=THINK)),
        ('<tool_call>{"name": "f", "arguments": {"a": "' + "\\n" * 1000 + '"}}', syntax("hermes")),
    ],
)
def test_texts_of_a_whole_answer_are_joined_once(
    text: str, of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not piece by piece, which takes time that is quadratic in their number."""
    sizes: list[int] = []

    def keep(delta: Any, name: str, value: Any) -> None:
        if isinstance(value, str):
            sizes.append(len(value))
        object.__setattr__(delta, name, value)

    for kind in (TextDelta, CallDelta):
        monkeypatch.setattr(kind, "__setattr__", keep)
    read(of, [text])
    assert len(text) // 2 < sum(sizes) < 3 * len(text)


def test_ids_are_fresh_and_of_the_length_that_templates_want() -> None:
    def ids(name: str, text: str) -> list[str]:
        deltas = AnswerParser(syntax(name)).feed(text)
        return [d.call_id for d in deltas if isinstance(d, CallDelta) and d.call_id]

    text, _ = ANSWERS["mistral"][1]
    first, second = ids("mistral", text)
    assert re.fullmatch(r"[A-Za-z0-9]{9}", first)
    assert first != second
    assert ids("mistral", "[TOOL_CALLS]time[CALL_ID]abcdefghi[ARGS]{}") == ["abcdefghi"]
    assert ids("kimi_k2", ANSWERS["kimi_k2"][0][0]) == ["functions.weather:0", "functions.time:1"]
    (made,) = ids("hermes", '<tool_call>{"name": "time"}</tool_call>')
    assert re.fullmatch(r"call_[0-9a-f]{24}", made)


# -------------------------------------------------------------------------------------- reasoning


@pytest.mark.parametrize(
    ("text", "is_reasoning", "expected"),
    [
        ("<think>\nHm.\n</think>\n\nYes.", False, Read("Yes.", "Hm.")),
        ("\n<think>Hm. </think>Yes. ", False, Read("Yes. ", "Hm.")),
        ("Hm.\n</think>\n\nYes.", True, Read("Yes.", "Hm.")),
        ("<think>\nHm.\n</think>\n\nYes.", True, Read("Yes.", "Hm.")),
        ("Hm", True, Read("", "Hm")),
        ("<think>\nHm.\n</thi", False, Read("", "Hm.\n</thi")),
        ("<think>\n\n</think>\n\nYes.", False, Read("Yes.")),
        ("Yes.<think>No.</think>", False, Read("Yes.<think>No.</think>")),
        ("\n\nYes.", False, Read("\n\nYes.")),
        ("<thin", False, Read("<thin")),
        ("", True, Read()),
        ("", False, Read()),
        (
            'Call.</think>\n\n<tool_call>{"name": "time"}</tool_call>',
            True,
            Read("", "Call.", [("time", "{}")]),
        ),
        (
            '<think><tool_call>{"name": "time"}</tool_call></think>No.',
            False,
            Read("No.", '<tool_call>{"name": "time"}</tool_call>'),
        ),
    ],
)
@pytest.mark.parametrize("name", ["hermes", None])
def test_reasoning(name: str | None, text: str, is_reasoning: bool, expected: Read) -> None:
    if name is None and expected.calls:
        expected = Read(text.split("</think>\n\n")[1], expected.reasoning)
    of = syntax(name, reasoning=THINK, is_reasoning=is_reasoning)
    assert read(of, [text]) == expected
    assert read(of, text) == expected


@pytest.mark.parametrize("name", sorted(REASONING_FORMATS))
def test_every_reasoning_format(name: str) -> None:
    form = REASONING_FORMATS[name]
    for opening in form.opens:
        for closing in form.closes:
            text = f"{opening}\nWhy? {closing[:-1]}\n{closing}\n\nSo."
            expected = Read("So.", f"Why? {closing[:-1]}")
            of = syntax(None, reasoning=form)
            assert read(of, [text]) == read(of, text) == expected
        assert form.is_open(f"a prompt{opening}\n")
        assert not form.is_open(f"a prompt{opening}{form.closes[0]}\n\n")
        assert form.last_is_open(f"{opening} I think")
        assert not form.last_is_open(f"{opening} I think {form.closes[0]} so")
        assert not form.last_is_open("so")


HARMONY_ANSWER = (
    "<|channel|>analysis<|message|>Hm. <|end|><|start|>assistant<|channel|>commentary<|message|>"
    "Wait.<|end|><|start|>assistant<|channel|>analysis<|message|>So<|end|><|start|>assistant"
)
FINAL = "<|channel|>final<|message|>Yes, <|x|> 1<2.\n"
TO_TIME = "<|channel|>commentary to=functions.time <|constrain|>json<|message|>{}"


@pytest.mark.parametrize(
    ("text", "is_reasoning", "expected"),
    [
        (HARMONY_ANSWER + FINAL, False, Read("Wait.\nYes, <|x|> 1<2.\n", "Hm. \nSo")),
        (FINAL, False, Read("Yes, <|x|> 1<2.\n")),
        (FINAL + "<|return|>", False, Read("Yes, <|x|> 1<2.\n")),
        (HARMONY_ANSWER + TO_TIME, False, Read("Wait.", "Hm. \nSo", [("time", "{}")])),
        (f"Why?<|end|>\n<|start|>assistant{TO_TIME}", True, Read("", "Why?", [("time", "{}")])),
        ("<|start|>assistant to=functions.time<|channel|>commentary<|message|>{}<|call|>", False,
         Read("", "", [("time", "{}")])),
        ("Plain, <|start|> and <|channel|>no more", False,
         Read("Plain, <|start|> and <|channel|>no more")),
        ("to be <|end|>", False, Read("to be <|end|>")),
        (TO_TIME + "}", False, Read("}", "", [("time", "{}")])),
        (TO_TIME[:-1], False, Read(TO_TIME[:-1])),
        ("<|channel|>analysis<|message|>Hm", False, Read("", "Hm")),
        ("<|channel|>analysis<|message|>Hm<|en", False, Read("", "Hm<|en")),
        (" ", False, Read(" ")),
        ("", False, Read()),
    ],
)  # fmt: skip
def test_messages(text: str, is_reasoning: bool, expected: Read) -> None:
    of = syntax("harmony", reasoning=MESSAGES, is_reasoning=is_reasoning)
    assert read(of, [text]) == expected
    assert read(of, text) == expected
    for i in range(len(text)):
        assert read(of, [text[:i], text[i:]]) == expected, i


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("name", "text", "reasoning"),
    [
        ("qwen3", "<think>\nHm.\n</think>\n\nYes.", "<think>\nHm.\n</think>"),
        ("qwen3", " <think>Hm", " <think>Hm"),
        ("qwen3", "Yes. <think>Hm.</think>", ""),
        ("harmony", HARMONY_ANSWER + FINAL, "Hm. <|end|>So<|end|>"),
    ],
)
def test_spans_of_reasoning(name: str, text: str, reasoning: str, size: int) -> None:
    parser = AnswerParser(syntax(None, reasoning=REASONING_FORMATS[name]))
    for i in range(0, len(text), size):
        parser.feed(text[i : i + size])
    parser.finish()
    assert parser.reasoning_is_known
    assert "".join(text[span.begin : span.end] for span in parser.reasoning_spans) == reasoning


# ----------------------------------------------------------------------------------------- effort

UNITS = [
    ("hermes", "<tool_call>"),
    ("hermes", '<tool_call>{"'),
    ("hermes", '<tool_call>{"name":"time","arguments":{"a":"'),
    ("hermes", '{"a":[' * 8),
    ("hermes", "<"),
    ("hermes", " \n"),
    ("hermes", "<tool_call>[" + '{"name":"time"},'),
    ("hermes", "\\"),
    ("qwen3_coder", "<tool_call><function=time>"),
    ("qwen3_coder", "<parameter=a>"),
    ("glm45", "<tool_call>time"),
    ("mistral", "[TOOL_CALLS]"),
    ("mistral", "[TOOL_CALLS][["),
    ("pythonic", "[time(a="),
    ("olmo3", "<function_calls>time()"),
    ("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"),
    ("gemma4", '<|tool_call>call:time{a:[<|"|>'),
    ("gemma4", "<|tool_call>call:time{a:"),
    ("lfm2", "<|tool_call_start|>[{"),
    ("pythonic", "[time(a='\\"),
    ("pythonic", "[time(a='' "),
    ("harmony", "<|start|>assistant<|channel|>analysis"),
    ("harmony", "<|channel|>analysis<|message|>"),
    ("harmony", "<|channel|>commentary to=functions.time<|message|>{"),
    ("harmony", " to="),
    ("llama3_json", "{"),
    ("llama3_json", "<|python_tag|>"),
]


def num_calls(name: str, text: str, size: int) -> int:
    """Python and C functions that run to read a text in pieces of this size."""
    count = 0

    def profile(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    of = syntax(name, reasoning=MESSAGES if name == "harmony" else THINK)
    sys.setprofile(profile)
    try:
        read(of, pieces)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("size", [1, 1 << 30])
@pytest.mark.parametrize(("name", "unit"), UNITS)
@pytest.mark.parametrize("begin", ["", "<think>", '<tool_call>{"name":"time","arguments":{"a":"'])
def test_the_effort_is_linear(name: str, unit: str, begin: str, size: int) -> None:
    few, many = (num_calls(name, begin + unit * (n // len(unit)), size) for n in (500, 2000))
    assert many < 5 * few + 100


@pytest.mark.parametrize("size", [1, 7, 1 << 30])
@pytest.mark.parametrize(("name", "unit"), UNITS)
def test_long_hostile_texts_end(name: str, unit: str, size: int) -> None:
    """A quadratic cost within a single operation, which num_calls does not see, takes minutes."""
    length = 120_000 if size > 1 else 24_000
    text = unit * (length // len(unit))
    of = syntax(name, reasoning=MESSAGES if name == "harmony" else None)
    read(of, (text[i : i + size] for i in range(0, len(text), size)))
