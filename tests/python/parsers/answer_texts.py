"""Texts of answers in every format with what they mean, and how tests read them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mlc_native.parsers.answer import AnswerParser, AnswerSyntax, Delta, TextDelta
from mlc_native.parsers.catalog import TOOL_FORMATS
from mlc_native.parsers.tool_format import Tool

WEATHER = Tool(
    "weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "tags": {}},
    },
)
OFFERED = {tool.name: tool for tool in (WEATHER, Tool("time"), Tool("ns.look-up"))}


@dataclass
class Read:
    """What an answer consists of; calls are (name, arguments)."""

    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)

    def add(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, TextDelta):
                assert delta.text, "an empty delta"
                setattr(self, delta.kind, getattr(self, delta.kind) + delta.text)
            elif delta.name is not None:
                assert delta.call_id
                assert delta.index == len(self.calls)
                self.calls.append((delta.name, delta.arguments))
            else:
                assert delta.call_id is None
                assert delta.index == len(self.calls) - 1
                name, arguments = self.calls[-1]
                self.calls[-1] = (name, arguments + delta.arguments)


def syntax(name: str | None, **fields: Any) -> AnswerSyntax:
    """The syntax of a format with all tools of OFFERED."""
    tools = TOOL_FORMATS[name] if name is not None else None
    return AnswerSyntax(tools, **{"offered": OFFERED, **fields})


def read(of: AnswerSyntax, pieces: Iterable[str]) -> Read:
    """Reads an answer that arrives in these pieces."""
    parser = AnswerParser(of)
    result = Read()
    for piece in pieces:
        result.add(parser.feed(piece))
    result.add(parser.finish())
    assert parser.has_complete_calls == bool(result.calls) or of.is_certain
    return result


def text(content: str) -> Read:
    return Read(content)


def calls(*made: tuple[str, str], content: str = "") -> Read:
    return Read(content, "", list(made))


PARIS = ("weather", '{"city": "Paris"}')
ROME3 = ("weather", '{"city": "Rome", "days": 3}')
NOW = ("time", "{}")
EMPTY = '{"a": [], "b": {}, "c": [], "d": [1], "from": [1]}'
NUMBERS = '{"a": 10, "b": 0.5, "c": 31, "d": -0.0, "e": 1E5}'
ESCAPES = r"""[time(a='\u00e9\ud83d\ude42\x41\101\/\d\t', b='''x'"'''"y" '', c="")]"""
ESCAPED = r"""{"a": "\u00e9\ud83d\ude42AA/\\d\t", "b": "x'\"y", "c": ""}"""
TRICKY = r'{"city": "a </tool_call> \" \\ \u00e9 {[ ] }", "tags": [1, {"x": null}, -2.5e-3, true]}'

HERMES = [
    ("", text("")),
    ("  \n ", text("  \n ")),
    ("Hello!", text("Hello!")),
    ("\n\nHello!\n", text("\n\nHello!\n")),
    ("a < b, <tool or <tool_cal", text("a < b, <tool or <tool_cal")),
    ("I say <tool_call> now.", text("I say <tool_call> now.")),
    (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        calls(PARIS),
    ),
    (
        '\n\n<tool_call>{"name":"weather","arguments":{"city": "Paris"}}</tool_call>\n',
        calls(PARIS),
    ),
    (
        'Wait.\n<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>\n'
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
        calls(NOW, PARIS, content="Wait.\n"),
    ),
    (
        '<tool_call>{"name": "time"}</tool_call> and then',
        calls(NOW, content=" and then"),
    ),
    ('<tool_call>{"name": "time", "arguments": null}</tool_call>', calls(NOW)),
    ('<tool_call>{"arguments": {}, "id": [1], "name": "time"}</tool_call>', calls(NOW)),
    ('<tool_call>{"name": "time", "arguments": "{}"}</tool_call>', calls(NOW)),
    ('<tool_call>{"name": "time", "parameters": {}}</tool_call>', calls(NOW)),
    (
        f'<tool_call>{{"name": "weather", "arguments": {TRICKY}}}</tool_call>',
        calls(("weather", TRICKY)),
    ),
    # Without the closing text, as some models end, or cut within it.
    ('<tool_call>{"name": "time", "arguments": {}}', calls(NOW)),
    ('<tool_call>{"name": "time", "arguments": {}}\n</tool', calls(NOW)),
    # A function that does not exist is still a call, and no text.
    ('<tool_call>{"name": "fly", "arguments": {}}</tool_call>', calls(("fly", "{}"))),
    (
        '<tool_call>[{"name": "time", "arguments": {}}, {"name": "time"}]</tool_call>',
        calls(NOW, NOW),
    ),
    *(
        (malformed, text(malformed))
        for malformed in (
            '<tool_call>{"name": "time", "arguments": {bad}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": {"a": 01}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": {"a": NaN}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": {"a": "\n"}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": {"a": "\\x"}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": {"a": 1,}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": [1]}</tool_call>',
            '<tool_call>{"name": "time", "arguments": "[1]"}</tool_call>',
            '<tool_call>{"name": "time", "arguments": 3}</tool_call>',
            '<tool_call>{"name": "time", "name": "time"}</tool_call>',
            '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
            '<tool_call>{"name": "", "arguments": {}}</tool_call>',
            '<tool_call>{"arguments": {}}</tool_call>',
            "<tool_call>{}</tool_call>",
            "<tool_call></tool_call>",
            "<tool_call>time()</tool_call>",
            '<tool_call>{"name": "time", "arguments": {}}}</tool_call>',
            '<tool_call>{"name": "time", "arguments": {}} ?</tool_call>',
            '<tool_call>\n{"name": "weather", "arguments": {"city": "Par',
            '<tool_call>\n{"na',
            "<tool_call>\n",
        )
    ),
    (
        '<tool_call>{"name": "x", bad</tool_call><tool_call>{"name": "time"}</tool_call>',
        calls(NOW, content='<tool_call>{"name": "x", bad</tool_call>'),
    ),
    (
        f'<tool_call>{{"name": "time", "arguments": {{"a": {"[" * 200}',
        text(f'<tool_call>{{"name": "time", "arguments": {{"a": {"[" * 200}'),
    ),
]
QWEN3_CODER = [
    ("2 <function 3", text("2 <function 3")),
    (
        "Hm.\n<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
        calls(ROME3, content="Hm.\n"),
    ),
    (
        "<tool_call><function=weather><parameter=city>Rome</parameter><parameter=days>3"
        "</parameter></function></tool_call>\n<tool_call><function=time></function></tool_call>",
        calls(ROME3, NOW),
    ),
    ("<tool_call>\n<function=time>\n</function>\n</tool_call>", calls(NOW)),
    ("<function=time>\n</function>\n</tool_call> ok", calls(NOW, content=" ok")),
    ("<tool_call>\n<function=time>\n</function>", calls(NOW)),
    (
        '<tool_call><function=weather><parameter=city>\n\n"a"\n<b> & \\n\n\n</parameter>'
        "<parameter=tags>[1, 2]</parameter></function></tool_call>",
        calls(("weather", r'{"city": "\n\"a\"\n<b> & \\n\n", "tags": [1, 2]}')),
    ),
    (
        "<tool_call><function=weather><parameter=days>many</parameter>"
        "<parameter=tags>True</parameter><parameter=city></parameter></function></tool_call>",
        calls(("weather", '{"days": "many", "tags": true, "city": ""}')),
    ),
    *(
        (malformed, text(malformed))
        for malformed in (
            "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</parameter>\n",
            "<tool_call>\n<function=weather>\n<parameter=city>\nRome\n</param",
            "<tool_call>\n<function=wea",
            "<tool_call>\n<function=>\n</function>\n</tool_call>",
            "<tool_call>\n<function=time>\nhello</function>\n</tool_call>",
            '<tool_call>\n{"name": "time"}\n</tool_call>',
        )
    ),
]
GLM45 = [
    (
        "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n"
        "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n<tool_call>time\n</tool_call>",
        calls(ROME3, NOW),
    ),
    ("Ok<tool_call>time</tool_call>", calls(NOW, content="Ok")),
    *(
        (malformed, text(malformed))
        for malformed in (
            "<tool_call>tim",
            "<tool_call></tool_call>",
            "<tool_call>what is it</tool_call>",
            "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n",
            "<tool_call>weather\n<arg_key>city</arg_key>Rome</tool_call>",
        )
    ),
]
MINIMAX = [
    (
        'A<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Rome</parameter>\n'
        '<parameter name="days">3</parameter>\n</invoke>\n<invoke name="time">\n</invoke>\n'
        "</minimax:tool_call>",
        calls(ROME3, NOW, content="A"),
    ),
    (
        '<minimax:tool_call><invoke name="time"></invoke><invoke name="ti',
        calls(NOW, content='<invoke name="ti'),
    ),
]
LLAMA = [
    ('{"name": "weather", "parameters": {"city": "Paris"}}', calls(PARIS)),
    (
        ' {"name": "time", "parameters": {}}; {"name": "weather", "parameters": {"city": "Paris"}}',
        calls(NOW, PARIS),
    ),
    ('<|python_tag|>{"type": "function", "name": "time", "parameters": {}}', calls(NOW)),
    ('Well: <|python_tag|>{"name": "time"}', calls(NOW, content="Well: ")),
    ('{"name": "time", "arguments": {}}', calls(NOW)),
    *(
        (malformed, text(malformed))
        for malformed in (
            # Without a marker, only the tools of the request are calls.
            '{"name": "Bob", "parameters": {}}',
            '{"a": {"name": "time", "parameters": {}}}',
            'See {"name": "time", "parameters": {}}',
            '{"name": "time", "parameters": {"a"',
            '<|python_tag|>brave_search.call(query="x")',
            "{",
        )
    ),
]
MISTRAL = [
    ('[TOOL_CALLS] [{"name": "weather", "arguments": {"city": "Paris"}}]', calls(PARIS)),
    (
        'Hi[TOOL_CALLS][{"name": "time", "arguments": {}, "id": "abcdefghi"}, '
        '{"name": "weather", "arguments": {"city": "Paris"}}]',
        calls(NOW, PARIS, content="Hi"),
    ),
    (
        '[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]time[ARGS]{}',
        calls(PARIS, NOW),
    ),
    ('[TOOL_CALLS]weather{"city": "Paris"}', calls(PARIS)),
    ("[TOOL_CALLS]ns.look-up[CALL_ID]abcdefghi[ARGS]{}", calls(("ns.look-up", "{}"))),
    (
        '[TOOL_CALLS] [{"name": "time"}, {"name": "weather", "arguments": {"city"',
        calls(NOW, content=' {"name": "weather", "arguments": {"city"'),
    ),
    *(
        (malformed, text(malformed))
        for malformed in (
            "[TOOL_CALLS] []",
            "[TOOL_CALLS]time",
            "[TOOL_CALLS]time[ARGS]",
            "[TOOL_CALLS]time[ARGS][1]",
            "[TOOL_CAL",
            "[1, 2] [",
        )
    ),
]
LISTS = [
    (
        '<|tool_call|>[{"name": "time", "arguments": {}}, '
        '{"name": "weather", "arguments": {"city": "Paris"}}]',
        calls(NOW, PARIS),
    ),
    ('<|tool_call|>{"name": "time"}', calls(NOW)),
    ("<|tool_call|>nothing", text("<|tool_call|>nothing")),
]
KIMI = [
    (
        "Ok<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0"
        '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>'
        "functions.time:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
        "<|tool_calls_section_end|>",
        calls(PARIS, NOW, content="Ok"),
    ),
    (
        "<|tool_calls_section_begin|> <|tool_call_begin|>time<|tool_call_argument_begin|>\n{}",
        calls(NOW),
    ),
    ("<|tool_calls_section_begin|>?", text("<|tool_calls_section_begin|>?")),
]
DEEPSEEK = [
    (
        "Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
        '{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>'
        "time\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        calls(PARIS, NOW, content="Ok"),
    ),
    (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>x",
        text("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>tool<｜tool▁sep｜>x"),
    ),
]
DEEPSEEK_V31 = [
    (
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{"city": "Paris"}'
        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>time<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
        "<｜tool▁calls▁end｜>",
        calls(PARIS, NOW),
    ),
]
PYTHON = [
    ('[weather(city="Paris"), time()]', calls(PARIS, NOW)),
    ("<|python_start|>[time()]<|python_end|>", calls(NOW)),
    (
        "[weather(city='a\"\\'),(', tags=[1, -2.5, {'x': None}, (True, false)])]",
        calls(("weather", '{"city": "a\\"\'),(", "tags": [1, -2.5, {"x": null}, [true, false]]}')),
    ),
    ("[time(a=1e999)]", calls(("time", '{"a": 1e999}'))),
    ("[time(a=[], b={}, c=(), d=(1,), from=[1, ], )]", calls(("time", EMPTY))),
    ("[ns.look-up(a=+1_0, b=.5, c=0x1F, d=-0.0, e=1E5)]", calls(("ns.look-up", NUMBERS))),
    (ESCAPES, calls(("time", ESCAPED))),
    *(
        (malformed, text(malformed))
        for malformed in (
            "[1, 2] is a list",
            "[]",
            "[fly(to='x')]",
            "[time(1)]",
            "[time(**x)]",
            "[time(a=b)]",
            "[time(a=[1)]",
            "[time(a='x\n')]",
            "[time(a=inf)]",
            "[time(a=007x)]",
            "[time(a=(1))]",
            "[time(a={b: 1})]",
            "[time(a={1: 1})]",
            "[time(a=[1 2])]",
            "[time(a=[,])]",
            "[time(a='\\u12')]",
            "[time(=1)]",
            "[time(a=1 b=2)]",
            "[time(",
            "[time()",
            "print [time()]",
        )
    ),
]
OLMO3 = [
    (
        'Ok\n<function_calls>\nweather(city="Paris")\ntime()\n</function_calls>',
        calls(PARIS, NOW, content="Ok\n"),
    ),
    ("<function_calls>\ntime", text("<function_calls>\ntime")),
]
LFM2 = [
    (
        '<|tool_call_start|>[weather(city="Paris")]<|tool_call_end|>Done.',
        calls(PARIS, content="Done."),
    ),
    (
        'Ok<|tool_call_start|>[{"name": "weather", "arguments": {"city": "Paris"}}, '
        '{"name": "time"}]<|tool_call_end|>',
        calls(PARIS, NOW, content="Ok"),
    ),
    ('<|tool_call_start|>{"name": "time", "arguments": {}}<|tool_call_end|>', calls(NOW)),
    ('<|tool_call_start|>[{"name": "time"', text('<|tool_call_start|>[{"name": "time"')),
]
LFM2_JSON = [case for case in LFM2 if "weather(" not in case[0]]
GEMMA4 = [
    (
        'Ok\n<|tool_call>call:weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:time{}<tool_call|>",
        calls(ROME3, NOW, content="Ok\n"),
    ),
    (
        '<|tool_call>call:weather{city:<|"|>"b" \\n\n{}<|"|>,tags:[{x:null},-2.5,<|"|><|"|>]}',
        calls(("weather", r'{"city": "\"b\" \\n\n{}", "tags": [{"x": null}, -2.5, ""]}')),
    ),
    ('<|tool_call>call:weather{"city": "Paris"}', calls(PARIS)),
    *(
        (malformed, text(malformed))
        for malformed in (
            "<|tool_call>call:{}<tool_call|>",
            "<|tool_call>time{}<tool_call|>",
            "<|tool_call>call:time<tool_call|>",
            "<|tool_call>call:time{a}<tool_call|>",
            "<|tool_call>call:time{a:b}<tool_call|>",
            "<|tool_call>call:time{:1}<tool_call|>",
            '<|tool_call>call:time{a:<|"|>b}<tool_call|>',
            "<|tool_call>call:time{} ?<tool_call|>",
        )
    ),
]
TO_TIME = " to=functions.time<|channel|>commentary json<|message|>{}"
TO_WEATHER = (
    "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
    '{"city": "Paris"}<|call|>'
)
HARMONY = [
    (TO_WEATHER, calls(PARIS)),
    (f"<|start|>assistant{TO_TIME}<|call|>", calls(NOW)),
    (
        f"Ok<|start|>assistant{TO_WEATHER}<|start|>assistant{TO_TIME}",
        calls(PARIS, NOW, content="Ok"),
    ),
    *(
        (malformed, text(malformed))
        for malformed in (
            "<|channel|>final<|message|>Hi<|end|>",
            "<|channel|>commentary to=functions.time<|message|>{",
            "<|channel|>commentary to=functions.time<|message|>[]",
            "<|channel|>commentary to=functions.<|message|>{}",
            "<|channel|>commentary to=browser.search code<|message|>{}",
            "<|channel|>commentary to=functions.time<|mess",
            "<|start|>assistant",
            "to=functions.time",
        )
    ),
]
PLAIN = [
    ('[{"name": "time", "arguments": {}}]', calls(NOW)),
    ('{"name": "time", "arguments": {}}', calls(NOW)),
    ('[{"name": "fly", "arguments": {}}]', text('[{"name": "fly", "arguments": {}}]')),
]
ANSWERS: dict[str, list[tuple[str, Read]]] = {
    "hermes": HERMES,
    "qwen3_coder": QWEN3_CODER,
    "glm45": GLM45,
    "minimax_m2": MINIMAX,
    "llama3_json": LLAMA,
    "mistral": MISTRAL,
    "mistral_v11": MISTRAL,
    "granite": LISTS,
    "phi4_mini_json": LISTS,
    "kimi_k2": KIMI,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v31": DEEPSEEK_V31,
    "pythonic": PYTHON,
    "olmo3": OLMO3,
    "lfm2": LFM2,
    "lfm2_json": LFM2_JSON,
    "gemma4": GEMMA4,
    "harmony": HARMONY,
    "json": PLAIN,
}
