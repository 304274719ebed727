"""From the JSON of Anthropic's ``/v1/messages`` to that of a chat completion."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from mlc_native.errors import invalid_request, shown
from mlc_native.server.fields import Fields, list_field, object_field, texts_field, tokens_field
from mlc_native.server.images import joined_contents, of_messages

_SAME = ("messages", "max_tokens", "temperature", "top_p", "top_k", "stream")
_READ = {
    *_SAME,
    *("model", "system", "stop_sequences", "tools", "tool_choice", "thinking", "output_config"),
    *("metadata", "service_tier"),
}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def chat_body(body: Fields) -> tuple[Fields, list[str]]:
    """The body of the chat completion, and the names of fields that have no effect.

    Raises:
        InvalidRequest: a field is missing, wrong or not supported.
    """
    fields = {name: value for name, value in body.items() if value is not None}
    if "max_tokens" not in fields:
        raise invalid_request("max_tokens", '"max_tokens" is required')
    tokens_field(fields, "max_tokens")
    chat = {name: fields[name] for name in _SAME if name in fields}
    chat["messages"] = _messages(fields)
    if "stop_sequences" in fields:
        chat["stop"] = texts_field(fields, "stop_sequences")
    if fields.get("tools"):
        chat["tools"] = [_tool(tool) for tool in list_field(fields, "tools")]
    chat.update(_tool_choice(object_field(fields, "tool_choice")))
    thinking = object_field(fields, "thinking")
    if thinking.get("type") in ("enabled", "disabled"):
        chat["chat_template_kwargs"] = {"enable_thinking": thinking["type"] == "enabled"}
    if thinking.get("type") == "enabled" and thinking.get("budget_tokens") is not None:
        chat["thinking_token_budget"] = thinking["budget_tokens"]
    form = object_field(fields, "output_config").get("format")
    if form is not None:
        if not isinstance(form, dict) or form.get("type") != "json_schema":
            raise invalid_request(
                "output_config",
                f'"output_config.format" must have the type "json_schema", got {shown(form)}',
            )
        schema = {"name": "answer", "schema": form.get("schema")}
        chat["response_format"] = {"type": "json_schema", "json_schema": schema}
    return chat, [name for name in fields if name not in _READ]


def _tool(tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type", "custom") != "custom":
        raise invalid_request("tools", f"only tools of the client are supported, got {shown(tool)}")
    function = {"name": tool.get("name"), "parameters": tool.get("input_schema", {})}
    function |= {name: tool[name] for name in ("description", "strict") if name in tool}
    return {"type": "function", "function": function}


def _tool_choice(choice: dict[str, Any]) -> Fields:
    fields: Fields = {}
    kind = choice.get("type")
    if kind == "tool":
        fields["tool_choice"] = {"type": "function", "function": {"name": choice.get("name")}}
    elif isinstance(kind, str) and kind in _CHOICES:
        fields["tool_choice"] = _CHOICES[kind]
    elif choice:
        raise invalid_request("tool_choice", f'"tool_choice" has the type {shown(kind)}')
    if choice.get("disable_parallel_tool_use") is True:
        fields["parallel_tool_calls"] = False
    return fields


# ----------------------------------------------------------------------------------- messages


def _messages(fields: Fields) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    system = _text(fields.get("system", ""), "system")
    if system:
        messages.append({"role": "system", "content": system})
    for message in list_field(fields, "messages"):
        role = message.get("role") if isinstance(message, dict) else None
        if role not in ("user", "assistant"):
            raise invalid_request("messages", f"a message has the role {shown(role)}")
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise invalid_request("messages", "the content of a message must be a text or blocks")
        turn = _assistant_turn(blocks) if role == "assistant" else _user_turn(blocks)
        for each in turn:
            _append(messages, each)
    return messages


def _append(messages: list[dict[str, Any]], message: dict[str, Any]) -> None:
    """Adds a message; two of the user's become one, as with Anthropic."""
    last = messages[-1] if messages else {}
    if message["role"] == "user" == last.get("role"):
        last["content"] = joined_contents(last["content"], message["content"])
    else:
        messages.append(message)


def _user_turn(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Results of tools, each as a message of its own, and the texts and images around them."""
    for block in blocks:
        if block.get("type") == "tool_result":
            yield {
                "role": "tool",
                "tool_call_id": block.get("tool_use_id"),
                "content": _text(block.get("content", ""), "messages"),
            }
        elif block.get("type") == "image":
            yield {"role": "user", "content": [of_messages(block)]}
        else:
            yield {"role": "user", "content": _text([block], "messages")}


def _assistant_turn(blocks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    texts: list[dict[str, Any]] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        kind = block.get("type")
        if kind == "thinking" and isinstance(block.get("thinking"), str):
            thoughts.append(block["thinking"])
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": json.dumps(block.get("input", {}))}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind != "redacted_thinking":
            texts.append(block)
    message: dict[str, Any] = {"role": "assistant", "content": _text(texts, "messages")}
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    yield message


def _text(content: Any, field: str) -> str:
    """The text of blocks, or of a text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid_request(field, f"the content must be a text or blocks, got {shown(content)}")
    texts = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind != "text" or not isinstance(block.get("text"), str):
            raise invalid_request(field, f"blocks of type {shown(kind)} are not supported here")
        texts.append(block["text"])
    return "".join(texts)
