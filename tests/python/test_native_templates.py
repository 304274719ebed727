"""The C++ renderer writes what jinja2's sandbox writes, with the same authors of each part."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from family_templates import FAMILIES
from template_programs import HISTORIES, OPTIONS, Programs, variables
from tool_requests import TEMPLATES, template

from mlc_native.conversation import ChatTemplate
from mlc_native.conversation_template import ConvTemplateRegistry
from mlc_native.template_sandbox import Limits, PromptText, TemplateLimitError
from mlc_native.template_sandbox.native import NativeTemplate, TemplateRaisedError

# Enough for any machine: a limit that only one of the two reaches would be a difference.
LIMITS = Limits(seconds=60, steps=10_000_000)


class Pair:
    """A template in both renderers."""

    def __init__(self, source: ChatTemplate | str) -> None:
        self.template = ChatTemplate(source) if isinstance(source, str) else source
        self.native = NativeTemplate.compile(self.template.source)
        self.own = {"bos_token": "<s>", "eos_token": "</s>", **self.template._variables}

    def compare(self, given: dict[str, Any], *, trusted: bool = False) -> str:
        """What happened: "equal", "refused" by the C++ renderer, "failed" in both, or a report."""
        if self.native is None:
            return "refused"
        expected, error = None, None
        try:
            expected = self.template._environment.render(
                self.template._template, given, LIMITS, own=self.own, trusted=trusted
            )
        except Exception as raised:
            error = raised
        try:
            text = self.native.render(given, self.own, LIMITS, trusted=trusted)
        except TemplateRaisedError as raised:
            return "failed" if str(raised) == str(error) else f"raised {raised}, not {error}"
        except TemplateLimitError as raised:  # macros that call each other without end
            stopped = isinstance(error, (TemplateLimitError, RecursionError))
            return "failed" if stopped else f"stopped {raised}, not {error}"
        if text is None:
            return "refused" if error is None else "failed"
        if expected is None:
            return f"{text!r} instead of {error!r}"
        same = (text, type(text), _own(text)) == (expected, type(expected), _own(expected))
        return "equal" if same else f"{text!r} {_own(text)}\n{expected!r} {_own(expected)}"


def _own(text: str) -> Any:
    return cast(PromptText, text).own if isinstance(text, PromptText) else None


def check(
    template: ChatTemplate | str,
    counts: Counter[str],
    name: str = "",
    all_options: list[dict[str, Any]] = OPTIONS,
) -> None:
    """Compares a template on all histories."""
    pair = Pair(template)
    for history in HISTORIES:
        for options in all_options:
            outcome = pair.compare(variables(history, options))
            assert outcome in ("equal", "refused", "failed"), f"{name} {history}: {outcome}"
            counts[outcome] += 1


@pytest.mark.parametrize("name", FAMILIES)
def test_families(name: str) -> None:
    counts: Counter[str] = Counter()
    check(FAMILIES[name], counts, name)
    assert counts["refused"] == 0
    assert counts["equal"] > 0


def test_every_dialect() -> None:
    counts: Counter[str] = Counter()
    for name, shape in TEMPLATES.items():
        check(template(shape), counts, name, OPTIONS[:2])
    for name in ConvTemplateRegistry.names():
        conversation = ConvTemplateRegistry.get_conv_template(name)
        assert conversation is not None
        check(conversation.chat_template("<s>"), counts, name, OPTIONS[:1])
    assert counts["refused"] == 0
    assert counts["equal"] > counts["failed"]


def test_trusted_input() -> None:
    pair = Pair(FAMILIES["qwen 3"])
    assert pair.compare(variables("a call", OPTIONS[1]), trusted=True) == "equal"


@pytest.mark.parametrize("shown", ["[3, 1]", "{'a': 1}", "(1.5,)", "['a'] | string"])
def test_what_shows_a_list_is_not_the_templates_own(shown: str) -> None:
    """Also where jinja2 could compute it in advance."""
    for source in (
        f"{{{{ {shown} }}}}",
        f"a{{{{ '<' ~ ({shown}) ~ '>' }}}}",
        f"{{{{ ({shown}) ~ '' }}}}",
    ):
        pair = Pair(source)
        assert pair.compare(variables("a call", OPTIONS[1])) == "equal", source
        assert pair.native is not None
        text = pair.native.render(variables("a call", OPTIONS[1]), pair.own, LIMITS, trusted=False)
        assert _own(text) is not None, source


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in [1, 2] %}{% break %}{% else %}a{% endfor %}",
        "{% for i in [1, 2] %}{% continue %}{% else %}a{% endfor %}",
        "{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}a{% endfor %}",
        "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}",
        "{% set b = 9 %}{% macro f(a=b, b=1) %}{{ a }}{{ b }}{% endmacro %}{{ f() }}{{ f(b=5) }}",
        "{{ 'a\x7f' | tojson(ensure_ascii=true) }}{{ '+-5' | int }}{{ '+-5' | float }}",
        "{{ ' a b c '.split(none, 1) }}{{ ' a b '.split(none, 5) }}",
        "{{ (0 - 0.4) | round(0, 'ceil') }}{{ 0.4 | round(0, 'floor') }}",
    ],
)
def test_rare_rules(source: str) -> None:
    assert Pair(source).compare(variables("a question", {})) == "equal"


def compare_programs(seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    names = list(HISTORIES)
    for seed in seeds:
        source = Programs(seed).program()
        outcome = Pair(source).compare(variables(names[seed % len(names)], OPTIONS[1]))
        assert outcome in ("equal", "refused", "failed"), f"{seed}: {source}\n{outcome}"
        counts[outcome] += 1
    return counts


def test_random_programs() -> None:
    counts = compare_programs(range(60))
    assert counts["equal"] > 20, counts


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.hangs_after(3600)
def test_many_random_programs() -> None:
    first = int(os.environ.get("MLC_NATIVE_TEMPLATE_SEED", "1000"))
    counts = compare_programs(range(first, first + 20_000))
    print(dict(counts))
    assert counts["equal"] > 5000


@pytest.mark.parametrize(
    "value", [1 << 70, float("nan"), 1e300, (1, 2), {1: 2}, "\ud800", b"x", 1.5, -0.0, True]
)
def test_values_of_python(value: Any) -> None:
    """What the C++ renderer does not have goes to jinja2, and nothing is rendered otherwise."""
    pair = Pair("{{ x }}{{ [x] | string }}")
    assert pair.compare({"x": value}) in ("equal", "refused", "failed")
    assert ChatTemplate("{{ x }}").render([], x=value) == str(value)


def test_jinja2_renders_what_the_other_does_not_know() -> None:
    messages = [{"role": "user", "content": "É"}]
    template = ChatTemplate("<s>{{ messages[0].content | lower }}")
    text = template.render(messages)
    assert text == "<s>é"
    assert cast(PromptText, text).own == ((0, 3),)
    assert ChatTemplate("{{ 'a b' | wordcount }}").render(messages) == "2"
    source = "{% set x = '<s>' ~ messages[0].content %}{{ x.y is defined }}{{ x | lower }}"
    assert ChatTemplate(source).render(messages) == "False<s>é"


def llama_templates(tmp_path: Path) -> list[Path]:
    """The templates that llama.cpp ships, of the source archive of llama-cpp-python."""
    if "MLC_NATIVE_TEMPLATES" in os.environ:
        folder = Path(os.environ["MLC_NATIVE_TEMPLATES"])
        return sorted(folder.rglob("*.jinja"))
    name = "llama-cpp-python"
    download = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", name, name]
    command = [*download, "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no source archive of {name}: {done.stderr[-300:]}")
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        members = [each for each in archive if "/models/templates/" in each.name]
        archive.extractall(tmp_path, members=members, filter="data")
    return sorted(tmp_path.rglob("*.jinja"))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.hangs_after(3600)
def test_templates_of_llama_cpp(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for path in llama_templates(tmp_path):
        check(path.read_text(encoding="utf-8"), counts, path.name)
    print(dict(counts))
    assert counts["equal"] > 2000
    assert counts["refused"] < counts["equal"] / 10
