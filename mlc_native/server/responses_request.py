"""From the JSON of OpenAI's ``/v1/responses`` to that of a chat completion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mlc_native.errors import invalid_request, shown
from mlc_native.protocol.generation_config import SamplingOptions
from mlc_native.server.fields import Fields, list_field, object_field, tokens_field
from mlc_native.server.images import of_responses

# By the same name in a chat completion: sampling, and what other servers have added to both.
_SAME = {
    *(name for name in SamplingOptions.model_fields if name not in ("n", "max_tokens")),
    *("stream", "parallel_tool_calls", "stop", "ignore_eos", "chat_template_kwargs"),
} - {"response_format", "prompt_logprobs", "include_stop_str_in_output"}
_READ = {
    *("model", "input", "instructions", "max_output_tokens", "tools", "tool_choice", "text"),
    *("reasoning", "include", "top_logprobs"),
}
_WITHOUT_EFFECT = {
    *("metadata", "store", "user", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "stream_options"),
}
_UNSUPPORTED: dict[str, str] = {
    "previous_response_id": "responses are not stored: send the earlier items in input",
    "conversation": "conversations are not stored: send the earlier items in input",
    "prompt": "prompt templates are not stored: send their text in input",
}
_LOGPROBS = "message.output_text.logprobs"
_ROLES = ("system", "developer", "user", "assistant")
_TEXT_PARTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


def chat_body(body: Fields) -> tuple[Fields, list[str]]:
    """The body of the chat completion, and the names of fields that have no effect.

    Raises:
        InvalidRequest: a field is missing, wrong or not supported.
    """
    fields = {name: value for name, value in body.items() if value is not None}
    _check_unsupported(fields)
    chat = {name: fields[name] for name in fields if name in _SAME}
    chat["messages"] = _messages(fields)
    if "max_output_tokens" in fields:
        chat["max_tokens"] = tokens_field(fields, "max_output_tokens")
    tools, ignored = _tools(fields)
    if tools:
        chat["tools"] = tools
    _add_tool_choice(chat, fields)
    _add_format(chat, object_field(fields, "text"))
    effort = object_field(fields, "reasoning").get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    if "top_logprobs" in fields or _LOGPROBS in list_field(fields, "include"):
        chat |= {"logprobs": True, "top_logprobs": fields.get("top_logprobs", 0)}
    unknown = [name for name in fields if name not in _SAME | _READ | _WITHOUT_EFFECT]
    return chat, ignored + unknown


def _check_unsupported(fields: Fields) -> None:
    for name, advice in _UNSUPPORTED.items():
        if name in fields:
            raise invalid_request(name, f'"{name}" is not supported: {advice}')
    if fields.pop("background", False) is not False:
        raise invalid_request("background", '"background" is not supported: use "stream"')
    if fields.get("truncation") == "disabled":
        del fields["truncation"]  # what does not fit is refused


# -------------------------------------------------------------------------------------- settings


def _tools(fields: Fields) -> tuple[list[dict[str, Any]], list[str]]:
    """The functions, and the types of tools that only OpenAI's servers have: they are ignored."""
    tools: list[dict[str, Any]] = []
    ignored: list[str] = []
    for tool in list_field(fields, "tools"):
        kind = tool.get("type") if isinstance(tool, dict) else None
        if not isinstance(kind, str):
            raise invalid_request("tools", f"a tool is an object with a type, got {shown(tool)}")
        if kind == "function":
            names = ("name", "description", "parameters", "strict")
            function = {name: tool[name] for name in names if tool.get(name) is not None}
            tools.append({"type": "function", "function": function})
        else:
            ignored.append(f"tools.{kind}")
    return tools, ignored


def _add_tool_choice(chat: Fields, fields: Fields) -> None:
    choice = fields.get("tool_choice")
    if choice is None or (choice == "auto" and "tools" not in chat):
        return  # "auto" of tools that are all ignored
    if isinstance(choice, dict):
        if choice.get("type") != "function":
            raise invalid_request(
                "tool_choice",
                f'"tool_choice" of the type {shown(choice.get("type"))} is not supported; allowed '
                'are "none", "auto", "required", and a function',
            )
        choice = {"type": "function", "function": {"name": choice.get("name")}}
    chat["tool_choice"] = choice


def _add_format(chat: Fields, text: dict[str, Any]) -> None:
    form = text.get("format")
    kind = form.get("type") if isinstance(form, dict) else None
    if form is None or kind == "text":
        return
    if kind == "json_schema":
        names = ("name", "schema", "strict", "description")
        schema = {name: form[name] for name in names if form.get(name) is not None}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif kind == "json_object":
        chat["response_format"] = {"type": "json_object"}
    else:
        raise invalid_request(
            "text",
            '"text.format" must have the type "text", "json_object" or "json_schema", got '
            + shown(form),
        )


# -------------------------------------------------------------------------------------- messages


def _messages(fields: Fields) -> list[dict[str, Any]]:
    given = fields.get("input")
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise invalid_request("input", '"input" must be a text or a list of items')
    messages: list[dict[str, Any]] = []
    instructions = _text(fields.get("instructions", ""), "instructions")
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in given:
        if not isinstance(item, dict):
            raise invalid_request("input", f"an item of input is an object, got {shown(item)}")
        _add_item(messages, item)
    return messages


def _add_item(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    """Adds an item. Reasoning, text and calls that follow each other are one assistant message."""
    kind = item.get("type", "message")
    if kind == "function_call_output":
        content = _text(item.get("output", ""), "input")
        tool = {"role": "tool", "tool_call_id": item.get("call_id"), "content": content}
        messages.append(tool)
    elif kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        _open_turn(messages, "tool_calls").setdefault("tool_calls", []).append(call)
    elif kind == "reasoning":
        thought = _text(item.get("content") or item.get("summary") or [], "input")
        if thought:
            messages.append({"role": "assistant", "content": "", "reasoning_content": thought})
    elif kind == "message":
        _add_message(messages, item)
    else:
        raise invalid_request("input", f"items of the type {shown(kind)} are not supported")


def _add_message(messages: list[dict[str, Any]], item: Mapping[str, Any]) -> None:
    role = item.get("role")
    if role not in _ROLES:
        raise invalid_request("input", f"a message has the role {shown(role)}")
    given = item.get("content", "")
    if role == "user" and _has_images(given):
        parts = [_part(part) for part in given]
        messages.append({"role": role, "content": parts})
        return
    content = _text(given, "input")
    if role == "assistant":
        _open_turn(messages, "content")["content"] = content
    else:
        messages.append({"role": role, "content": content})


def _has_images(content: Any) -> bool:
    if not isinstance(content, list):
        return False
    return any(isinstance(part, dict) and part.get("type") == "input_image" for part in content)


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, dict) and part.get("type") == "input_image":
        return of_responses(part, "input")
    return {"type": "text", "text": _text([part], "input")}


def _open_turn(messages: list[dict[str, Any]], part: str) -> dict[str, Any]:
    """The assistant message that the next part belongs to, which is made if there is none."""
    last = messages[-1] if messages else {}
    is_open = last.get("role") == "assistant" and (
        part == "tool_calls" or not (last["content"] or "tool_calls" in last)
    )
    if not is_open:
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _text(content: Any, field: str) -> str:
    """The text of parts, or of a text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid_request(field, f"the content must be a text or parts, got {shown(content)}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        text = part.get("refusal" if kind == "refusal" else "text") if kind is not None else None
        if kind not in (*_TEXT_PARTS, "refusal") or not isinstance(text, str):
            raise invalid_request(field, f"parts of the type {shown(kind)} are not supported here")
        texts.append(text)
    return "".join(texts)
