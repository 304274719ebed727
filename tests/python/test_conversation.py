"""Chat templates: where they come from, what they render, and that none can run for ever."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from mlc_native.conversation import ChatTemplate, load_chat_template
from mlc_native.errors import InvalidRequest, LoadError
from mlc_native.protocol.conversation_protocol import Conversation
from mlc_native.template_sandbox import Limits

MESSAGES = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
SHORT = Limits(seconds=0.3, steps=10_000_000, output_chars=100_000)


def render(source: str, limits: Limits | None = None, **variables: Any) -> str:
    return ChatTemplate(source, limits=limits).render(MESSAGES, **variables)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ loop.index }}{{ m.content }}{% endfor %}", "1a2b"),
        ("{% for m in messages if m.role == 'user' %}{{ m['content'] }}{% endfor %}", "a"),
        ("  {% if add_generation_prompt %}\nx\n  {% endif %}\n", "x\n"),  # trim and lstrip
        ("{{ {'é': '<'} | tojson }}", '{"é": "<"}'),  # no HTML, no escapes
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% generation %}{{ messages[1].content }}{% endgeneration %}", "b"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f('a') ~ f(1) }}", "<a><1>"),
        (
            "{% macro g() %}[{{ caller('z') }}]{% endmacro %}"
            "{% call(x) g() %}q{{ x }}{% endcall %}",
            "[qz]",
        ),
        (
            "{% set s = namespace(n=0) %}{% for m in messages %}{% set s.n = s.n + 1 %}"
            "{% endfor %}{{ s.n }}",
            "2",
        ),
        ("{% filter upper %}abc{% endfilter %}{% set x | lower %}DE{% endset %}{{ x }}", "ABCde"),
        ("{{ messages | map(attribute='content') | join(',') }}", "a,b"),
        (
            "{{ 'a%sb' % 'x' }}{{ 'x{}'.format(3) }}{{ 7 % 4 }}{{ 2 ** 3 }}{{ '-' * 3 }}",
            "axbx338---",
        ),
        ("{{ tools is none }}{{ messages[1:] | length }}", "True1"),
        ("{{ strftime_now('%Y') | length }}", "4"),
    ],
)
def test_renders(source: str, expected: str) -> None:
    assert render(source) == expected


def test_same_text_as_transformers() -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    source = (
        "{%- set ns = namespace(found=false) %}\n"
        "{{- bos_token }}\n"
        "{%- for m in messages %}\n"
        "    {%- if m.role == 'user' and not ns.found %}{% set ns.found = true %}{%- endif %}\n"
        "    {{- '<|' + m.role + '|>\\n' + m.content | trim + '\\n' }}\n"
        "{%- endfor %}\n"
        "{%- if tools %}{{ tools | tojson(indent=4) }}{% endif %}\n"
        "{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}\n"
    )
    tools = [{"type": "function", "function": {"name": "f", "description": "é<"}}]
    texts, _ = utils.render_jinja_template(
        [MESSAGES], tools=tools, chat_template=source, add_generation_prompt=True, bos_token="<s>"
    )
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, tools=tools) == texts[0]


ENDLESS = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}",
    "a loop whose condition drops all": "{% for i in range(99999) %}"
    "{% for j in range(99999) if false %}{% endfor %}{% endfor %}",
    "exponential macros": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "endless macros": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "endless output": "{% for i in range(99999) %}{% for j in range(99999) %}x"
    "{% endfor %}{% endfor %}",
    "a doubling text": "{% set s = namespace(x='a') %}{% for i in range(99) %}"
    "{% set s.x = s.x ~ s.x %}{% endfor %}",
    "a doubling sum": "{% set s = namespace(x='a') %}{% for i in range(99) %}"
    "{% set s.x = s.x + s.x %}{% endfor %}",
    "a large product": "{{ 'a' * 10 ** 10 }}",
    "a large power": "{{ 10 ** 10 ** 10 }}",
    "a wide filter": "{{ 'a' | center(10000000000) }}",
    "a wide filter block": "{% filter center(10000000000) %}a{% endfilter %}",
    "a wide set block": "{% set x | center(10000000000) %}a{% endset %}",
    "a wide method": "{{ 'a'.ljust(10000000000) }}",
    "a wide % format": "{{ '%10000000000d' % 1 }}",
    "a wide argument of a % format": "{{ '%*d' % (10000000000, 1) }}",
    "a wide format": "{{ '{:>10000000000}'.format(1) }}",
    "a multiplying replace": "{% set s = 'a' * 99999 %}{{ s | replace('a', s) }}",
    "many references to one text": "{% set s = 'a' * 99999 %}{{ ([s] * 99999) | join }}",
    "mapped wide filters": "{{ range(99999) | map('string') | map('center', 99999) | list }}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_stops_what_would_not_end(source: str) -> None:
    template = ChatTemplate(source, limits=SHORT)
    start = time.monotonic()
    with pytest.raises(InvalidRequest, match="chat template was stopped") as error:
        template.render(MESSAGES)
    assert error.value.field == "messages"
    assert time.monotonic() - start < 30  # a limit of 0.3 s, on a machine of any speed


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ nothing.at.all }}", "undefined"),
        ("{{ 1 / 0 }}", "division"),
        ("{% include 'other' %}", "loader"),
    ],
)
def test_failing_templates_name_the_reason(source: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match="refused the messages") as error:
        render(source)
    assert reason in str(error.value)


def test_generation_blocks_are_scopes_as_in_transformers() -> None:
    utils = pytest.importorskip("transformers.utils.chat_template_utils")
    block = "{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}"
    for source in (block, block + "{{ 'a b' | wordcount }}"):  # in C++, and in jinja2
        (text,), _ = utils.render_jinja_template([MESSAGES], chat_template=source)
        assert render(source) == text


def test_errors_may_quote_any_characters() -> None:
    with pytest.raises(InvalidRequest, match="unsupported format character"):
        render("{{ '%é' % 'x' }}")
    assert render("{{ (5)[messages[0].content] is defined }}{{ (5)['é' * 30 ~ 'a'] }}") == "False"
    assert render("{{ (5)['a' ~ 'é' * 30] is defined }}") == "False"


@pytest.mark.parametrize(
    "source",
    ["{% for %}", "{{ ", "{% endif %}", "x" * (1 << 21), f"{{{{ x '{'é' * 30}' }}}}"],
    ids=range(5),
)
def test_invalid_templates_do_not_load(source: str) -> None:
    with pytest.raises(LoadError) as error:
        ChatTemplate(source)
    assert error.value.field == "chat_template"


def test_a_failed_rendering_leaves_no_trace() -> None:
    template = ChatTemplate("{% if x %}{{ raise_exception('no') }}{% endif %}ok")
    with pytest.raises(InvalidRequest):
        template.render(MESSAGES, x=True)
    assert template.render(MESSAGES, x=False) == "ok"


def write(folder: Path, name: str, content: object) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).write_text(text)


def test_no_template(tmp_path: Path) -> None:
    assert load_chat_template(tmp_path) is None
    write(tmp_path, "tokenizer_config.json", {"bos_token": "<s>"})
    assert load_chat_template(tmp_path) is None


@pytest.mark.parametrize(
    "template",
    [
        "T{{ bos_token }}",
        [{"name": "x", "template": "X"}, {"name": "default", "template": "T{{ bos_token }}"}],
    ],
)
def test_template_of_tokenizer_config(tmp_path: Path, template: object) -> None:
    special = {"content": "<s>", "lstrip": False}
    write(tmp_path, "tokenizer_config.json", {"bos_token": special, "chat_template": template})
    loaded = load_chat_template(tmp_path)
    assert loaded is not None
    assert loaded.render(MESSAGES) == "T<s>"


def test_files_of_their_own_come_first(tmp_path: Path) -> None:
    write(tmp_path, "tokenizer_config.json", {"chat_template": "config"})
    write(tmp_path, "chat_template.json", {"chat_template": "json"})
    assert load_chat_template(tmp_path).render(MESSAGES) == "json"  # type: ignore[union-attr]
    write(tmp_path, "chat_template.jinja", "jinja")
    assert load_chat_template(tmp_path).render(MESSAGES) == "jinja"  # type: ignore[union-attr]


@pytest.mark.parametrize("content", ["{", "[]", '"x"'])
def test_damaged_files_are_named(tmp_path: Path, content: str) -> None:
    write(tmp_path, "tokenizer_config.json", content)
    with pytest.raises(LoadError, match=r"tokenizer_config\.json is damaged"):
        load_chat_template(tmp_path)


# ---- conv_template of an MLC folder ----

CONVERSATION = {
    "system_template": "<<{system_message}>>",
    "system_message": "Be kind.",
    "roles": {"user": "U", "assistant": "A", "tool": "T"},
    "role_templates": {"user": "[{user_message}{function_string}]"},
    "seps": ["|", "/"],
    "role_content_sep": ": ",
    "role_empty_sep": ":",
    "stop_str": ["/"],
}
TURNS = [
    {"role": "user", "content": "a {user_message}"},
    {"role": "assistant", "content": "<think>t</think>\nb"},
    {"role": "tool", "content": "c"},
]


@pytest.mark.parametrize(
    ("fields", "messages", "expected"),
    [
        ({}, TURNS, "^<<Be kind.>>U: [a {user_message}]|A: <think>t</think>\nb/T: c|A:"),
        (
            {"seps": ["|"]},
            TURNS[:2],
            "^<<Be kind.>>U: [a {user_message}]|A: <think>t</think>\nb|A:",
        ),
        ({}, [{"role": "system", "content": "Sing."}, *TURNS[2:]], "^<<Sing.>>T: c|A:"),
        (
            {"add_role_after_system_message": False},
            [{"role": "system", "content": "Sing."}, TURNS[2], TURNS[2]],
            "^<<Sing.>>c|T: c|A:",
        ),
        (
            {"add_role_after_system_message": False, "system_template": ""},
            TURNS[2:],
            "^T: c|A:",
        ),
        (
            {"strip_reasoning_in_history": True},
            [*TURNS[:2], {"role": "user", "content": "d"}, TURNS[1]],
            "^<<Be kind.>>U: [a {user_message}]|A: b/U: [d]|A: <think>t</think>\nb/A:",
        ),
    ],
)
def test_conversation_of_mlc(
    fields: dict[str, Any], messages: list[dict[str, str]], expected: str
) -> None:
    template = Conversation(**(CONVERSATION | fields)).chat_template("^")
    assert template.render(messages) == expected
    assert template.stop_strs == ("/",)


def test_a_role_without_a_template_shows_its_content() -> None:
    roles = {"user": "U", "assistant": "A", "judge": "J"}
    conversation = Conversation(**(CONVERSATION | {"roles": roles}))
    conversation.messages = [("judge", "x"), ("assistant", None)]
    assert conversation.as_prompt() == ["<<Be kind.>>J: x|A:"]


def test_conversation_refuses_a_role_it_lacks() -> None:
    template = Conversation(**CONVERSATION).chat_template("")
    with pytest.raises(InvalidRequest, match="no role judge"):
        template.render([{"role": "judge", "content": "x"}])


@pytest.mark.parametrize("tail", ["{{ messages[loop.index0:] | length }}", "{{ m | tojson }}", ""])
def test_the_limits_grow_with_the_chat(tail: str) -> None:
    """A megabyte in 4,096 messages is rendered, also by a template that looks at all of them."""
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}" + tail
    messages = [{"role": "user", "content": "word " * 50}] * 4096
    text = ChatTemplate(source + "{% endfor %}").render(messages)
    assert text.count("<|im_start|>user\nword word") == 4096


def test_the_same_chat_in_a_template_that_repeats_it_is_stopped() -> None:
    source = "{% for m in messages %}{{ messages | tojson }}{% endfor %}"
    with pytest.raises(InvalidRequest, match="chat template was stopped"):
        ChatTemplate(source).render([{"role": "user", "content": "word " * 50}] * 4096)
