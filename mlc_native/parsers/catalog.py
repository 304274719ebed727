"""The formats by name, and the choice of one by the chat template of a model."""

from __future__ import annotations

from mlc_native.errors import invalid_config
from mlc_native.parsers.gemma import GemmaCalls
from mlc_native.parsers.harmony import CHANNEL, MESSAGE, START, HarmonyCalls
from mlc_native.parsers.json_formats import JsonObjects, NamedJson
from mlc_native.parsers.mistral import Mistral
from mlc_native.parsers.python_formats import PythonCalls
from mlc_native.parsers.reasoning import REASONING_FORMATS, ReasoningFormat
from mlc_native.parsers.tagged_formats import TaggedArguments
from mlc_native.parsers.tool_format import ToolFormat

AUTO = "auto"
NONE = "none"

# What an answer is made to look like where the format of the model has no grammar, or is not known.
PLAIN_JSON = JsonObjects("json", bare="[{", listed=True)

_TOOL_FORMATS: tuple[ToolFormat, ...] = (
    JsonObjects("hermes", ("<tool_call>",), end="</tool_call>", repeats=True),
    TaggedArguments(
        "qwen3_coder",
        ("<tool_call>", "<function="),
        repeats=True,
        section_end="</tool_call>",
        call="<function=",
        name_end=">",
        call_end="</function>",
        parameter="<parameter=",
        key_end=(">",),
        value_end="</parameter>",
        value_blank="\n",
    ),
    TaggedArguments(
        "glm45",
        ("<tool_call>",),
        repeats=True,
        section_end="</tool_call>",
        parameter="<arg_key>",
        key_end=("</arg_key>", "<arg_value>"),
        value_end="</arg_value>",
    ),
    TaggedArguments(
        "minimax_m2",
        ("<minimax:tool_call>",),
        section_end="</minimax:tool_call>",
        call='<invoke name="',
        name_end='">',
        call_end="</invoke>",
        parameter='<parameter name="',
        key_end=('">',),
        value_end="</parameter>",
    ),
    JsonObjects("llama3_json", ("<|python_tag|>",), bare="{", separator=";", key="parameters"),
    Mistral("mistral", ("[TOOL_CALLS]",), id_length=9, listed=True),
    Mistral("mistral_v11", ("[TOOL_CALLS]",), id_length=9, named=True, repeats=True),
    JsonObjects("granite", ("<|tool_call|>", "<tool_call>"), listed=True),
    JsonObjects(
        "phi4_mini_json", ("<|tool_call|>", "functools"), end="<|/tool_call|>", listed=True
    ),
    NamedJson(
        "kimi_k2",
        ("<|tool_calls_section_begin|>",),
        section_end="<|tool_calls_section_end|>",
        call="<|tool_call_begin|>",
        middle="<|tool_call_argument_begin|>",
        call_end="<|tool_call_end|>",
        id_pattern=r"(?:functions\.)?([\w.:/-]+):[0-9]+",
    ),
    NamedJson(
        "deepseek_v3",
        ("<｜tool▁calls▁begin｜>",),
        section_end="<｜tool▁calls▁end｜>",
        call="<｜tool▁call▁begin｜>",
        kind="function<｜tool▁sep｜>",
        middle="\n```json\n",
        call_end="\n```<｜tool▁call▁end｜>",
    ),
    NamedJson(
        "deepseek_v31",
        ("<｜tool▁calls▁begin｜>",),
        section_end="<｜tool▁calls▁end｜>",
        call="<｜tool▁call▁begin｜>",
        middle="<｜tool▁sep｜>",
        call_end="<｜tool▁call▁end｜>",
    ),
    PythonCalls("lfm2", ("<|tool_call_start|>",), end="<|tool_call_end|>", or_json=True),
    JsonObjects("lfm2_json", ("<|tool_call_start|>",), end="<|tool_call_end|>", listed=True),
    PythonCalls("olmo3", ("<function_calls>",), end="</function_calls>", lines=True),
    PythonCalls("pythonic", ("<|python_start|>",), bare="[", end="<|python_end|>"),
    GemmaCalls("gemma4", ("<|tool_call>",), end="<tool_call|>", repeats=True),
    HarmonyCalls("harmony", (CHANNEL, START)),
    PLAIN_JSON,
)
TOOL_FORMATS = {tool_format.name: tool_format for tool_format in _TOOL_FORMATS}
# Other names of the same formats, as vLLM has them.
_ALIASES = {
    "qwen3_xml": "qwen3_coder",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "glm47": "glm45",
    "openai": "harmony",
}
_REASONING_ALIASES = {"openai_gptoss": "harmony"}

# The first row whose texts are all in the template decides.
_TOOLS_BY_TEMPLATE = (
    ((CHANNEL, MESSAGE), "harmony"),
    (("<|tool_call>",), "gemma4"),
    (("<minimax:tool_call>",), "minimax_m2"),
    (("<tool_call>", "<arg_key>"), "glm45"),
    (("<tool_call>", "<function="), "qwen3_coder"),
    (("<function_calls>",), "olmo3"),
    (("<|tool_call_start|>",), "lfm2"),
    (("<|tool_calls_section_begin|>",), "kimi_k2"),
    (("<｜tool▁calls▁begin｜>", "```json"), "deepseek_v3"),
    (("<｜tool▁calls▁begin｜>",), "deepseek_v31"),
    (("[TOOL_CALLS]", "[ARGS]"), "mistral_v11"),
    (("[TOOL_CALLS]",), "mistral"),
    (("<|tool_call|>", "<|/tool_call|>"), "phi4_mini_json"),
    (("<|tool_call|>",), "granite"),
    (("<tool_call>",), "hermes"),
    (("<|python_start|>",), "pythonic"),
    (("<|python_tag|>",), "llama3_json"),
    (('"parameters": ', "<|eot_id|>"), "llama3_json"),
)
_REASONING_BY_TEMPLATE = (
    (MESSAGE, "harmony"),
    ("<|channel>", "gemma4"),
    ("[THINK]", "mistral"),
    ("<seed:think>", "seed_oss"),
    ("◁think▷", "kimi_vl"),
    ("Here is my thought process:", "granite"),
    ("<think>", "qwen3"),
    ("</think>", "qwen3"),
)


def tool_format(name: str | None, template: str) -> ToolFormat | None:
    """How calls of tools are written.

    Args:
        name: a name of TOOL_FORMATS; "auto" or None for the one of the template; "none" for no
            format, so that calls stay text.
        template: what the model's chat template writes.

    Raises:
        InvalidConfig: there is no such format.
    """
    if name == NONE:
        return None
    if name in (None, AUTO):
        for texts, found in _TOOLS_BY_TEMPLATE:
            if all(text in template for text in texts):
                return TOOL_FORMATS[found]
        return None
    assert name is not None
    chosen = TOOL_FORMATS.get(_ALIASES.get(name, name))
    if chosen is None:
        raise invalid_config("tool_call_parser", _unknown("tool_call_parser", name, TOOL_FORMATS))
    return chosen


def reasoning_format(name: str | None, template: str) -> ReasoningFormat | None:
    """How reasoning is marked. The arguments and errors are those of ``tool_format``."""
    if name == NONE:
        return None
    if name in (None, AUTO):
        for text, found in _REASONING_BY_TEMPLATE:
            if text in template:
                return REASONING_FORMATS[found]
        return None
    assert name is not None
    chosen = REASONING_FORMATS.get(_REASONING_ALIASES.get(name, name))
    if chosen is None:
        raise invalid_config(
            "reasoning_parser", _unknown("reasoning_parser", name, REASONING_FORMATS)
        )
    return chosen


def _unknown(field: str, name: str, known: object) -> str:
    names = ", ".join(sorted(map(str, known)))  # type: ignore[call-overload]
    return f'"{field}" must be one of auto, none, {names}, got {name!r}'
