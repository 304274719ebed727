"""Tools, templates that show them, and the messages of answers, for tests of calls of tools."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_model import EOS

ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Paris", 'a "quoted" place', "Zürich"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 12},
        "hourly": {"type": "boolean"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}


def tool(name: str, parameters: Any = None, **fields: Any) -> dict[str, Any]:
    function = {"name": name, "parameters": PARAMETERS if parameters is None else parameters}
    return {"type": "function", "function": {**function, **fields}}


TOOLS = [tool("weather"), tool("time", {}), tool("ns.look-up", {"properties": {"a": {"const": 1}}})]
SCHEMAS: dict[str, Any] = {
    "weather": PARAMETERS,
    "time": {"type": "object", "maxProperties": 0},
    "ns.look-up": {"type": "object", "properties": {"a": {"const": 1}}},
}
# What a chat template of each family has, as far as the choice of its formats goes.
TEMPLATES = {
    "hermes": '<tool_call>\\n{"name": ...}\\n</tool_call>',
    "qwen3": '<tool_call>\\n{"name": ...}\\n</tool_call> <think>',
    "qwen3_coder": "<tool_call>\\n<function=x>\\n<parameter=y>",
    "glm45": "<tool_call>x<arg_key>y</arg_key><arg_value>z</arg_value></tool_call> <think>",
    "minimax_m2": "<minimax:tool_call><invoke>",
    "llama3_json": "<|python_tag|>",
    "mistral": "[TOOL_CALLS]",
    "mistral_v11": "[TOOL_CALLS] [ARGS] [THINK]",
    "granite": "<|tool_call|>",
    "phi4_mini_json": "<|tool_call|> <|/tool_call|>",
    "kimi_k2": "<|tool_calls_section_begin|>",
    "deepseek_v3": "<｜tool▁calls▁begin｜> ```json",
    "deepseek_v31": "<｜tool▁calls▁begin｜>",
    "pythonic": "<|python_start|>",
    "olmo3": "<function_calls>",
    "lfm2": "<|tool_call_start|>",
    "gemma4": "<|tool_call>call:x{<tool_call|> <|channel>thought<channel|>",
    "harmony": "<|start|>assistant<|channel|>x<|message|><|end|>",
    "none": "",
}


def template(shape: str, opening: str = "") -> str:
    """A chat template that shows tools if they have a format, and opens the answer."""
    shown = f"{{% if tools %}}Use: {shape}{{% endif %}}"
    messages = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    return f"{shown}{messages}assistant: {opening}"


def joined(chunks: list[Any]) -> tuple[Any, Any]:
    """The message and finish reason of a stream, joined as clients do it."""
    message: dict[str, Any] = {"content": None, "reasoning_content": None, "tool_calls": None}
    reason = None
    for chunk in chunks:
        for choice in chunk.choices:
            assert reason is None, "a chunk behind the finish reason"
            reason = choice.finish_reason
            delta = choice.delta
            for name in ("content", "reasoning_content"):
                if getattr(delta, name) is not None:
                    message[name] = (message[name] or "") + getattr(delta, name)
            for call in delta.tool_calls or []:
                add_call(message, call)
    return message, reason


def add_call(message: dict[str, Any], call: Any) -> None:
    calls = message["tool_calls"] = message["tool_calls"] or []
    if call.index == len(calls):
        assert call.id
        assert call.type == "function"
        assert call.function.name
        calls.append({"name": call.function.name, "arguments": ""})
    else:
        assert call.id is None
        assert call.type is None
        assert call.function.name is None
    assert call.index == len(calls) - 1
    calls[call.index]["arguments"] += call.function.arguments


def plain(message: Any) -> dict[str, Any]:
    calls = [
        {"name": call.function.name, "arguments": call.function.arguments}
        for call in message.tool_calls or []
    ]
    return {
        "content": message.content or None,
        "reasoning_content": message.reasoning_content,
        "tool_calls": calls or None,
    }


def write_special_tokens(make_model: Callable[..., str], answer: list[int]) -> str:
    """A model that speaks token ids; 257 is the special token [TOOL_CALLS], 258 <|x|>."""
    model = make_model(
        script=[*answer, EOS], vocab_size=259, chat_template=template(TEMPLATES["mistral"])
    )
    path = Path(model) / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    for token_id, text in ((257, "[TOOL_CALLS]"), (258, "<|x|>")):
        added = dict(tokenizer["added_tokens"][0], id=token_id, content=text)
        tokenizer["added_tokens"].append(added)
    path.write_text(json.dumps(tokenizer))
    return model
