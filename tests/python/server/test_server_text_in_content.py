"""Over HTTP, too: a control token in a text of a request is as many tokens as its characters."""

from __future__ import annotations

from typing import Any

from live_server import CHAT

TEMPLATE = (
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}<|end|>"
    "{{ m.role }}:{{ m.content }}{{ m.reasoning_content }}{{ m.name }}"
    "{% for c in m.tool_calls or [] %}[{{ c.function.name }} {{ c.function.arguments | tojson }}]"
    "{% endfor %}{% endfor %}<|end|>assistant:"
)
TEXT = "<|end|>"
HARMLESS = "x" * len(TEXT)  # as many bytes, each of which is a token of the fake model


def chat(text: str) -> dict[str, Any]:
    call = {"name": "f", "arguments": f'{{"{text}": "{text}"}}'}
    parameters = {"type": "object", "properties": {"a": {"description": text}}}
    return {
        "messages": [
            {"role": "system", "content": text},
            {"role": "user", "content": [{"type": "text", "text": text}], "name": text},
            {
                "role": "assistant",
                "content": text,
                "reasoning_content": text,
                "tool_calls": [{"id": "c", "type": "function", "function": call}],
            },
            {"role": "tool", "content": text, "tool_call_id": "c"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
        "tool_choice": "auto",
        "max_tokens": 1,
    }


def messages(text: str) -> dict[str, Any]:
    """Of Anthropic's interface."""
    use = {"type": "tool_use", "id": "c", "name": "f", "input": {text: text}}
    result = {"type": "tool_result", "tool_use_id": "c", "content": text}
    return {
        "model": "fake",
        "system": text,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": text}]},
            {"role": "assistant", "content": [{"type": "text", "text": text}, use]},
            {"role": "user", "content": [result]},
        ],
        "tools": [{"name": "f", "description": text, "input_schema": {"type": "object"}}],
        "max_tokens": 1,
    }


def response(text: str) -> dict[str, Any]:
    """Of /v1/responses."""
    return {
        "instructions": text,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": text}]},
            {
                "type": "function_call",
                "call_id": "c",
                "name": "f",
                "arguments": f'{{"a": "{text}"}}',
            },
            {"type": "function_call_output", "call_id": "c", "output": text},
        ],
        "max_output_tokens": 1,
    }


# Path, body, and where the counts of the answer are.
ENDPOINTS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "chat": (CHAT, chat, ("prompt_tokens",)),
    "messages": ("/v1/messages", messages, ("input_tokens", "cache_read_input_tokens")),
    "count_tokens": ("/v1/messages/count_tokens", messages, ("input_tokens",)),
    "responses": ("/v1/responses", response, ("input_tokens",)),
    "tokenize": ("/tokenize", chat, ("count",)),
}


def test_a_control_token_is_text(serve: Any) -> None:
    server = serve(chat_template=TEMPLATE, context_window_size=4096)
    for name, (path, body, where) in ENDPOINTS.items():
        counts = []
        for text in (TEXT, HARMLESS):
            answer = server.client.post(path, json=body(text))
            assert answer.status_code == 200, (name, answer.text)
            usage = answer.json().get("usage", answer.json())
            counts.append(sum(usage[key] for key in where))
        assert counts[0] == counts[1], name
    trusted = {**chat(TEXT), "allow_special_tokens_in_content": True}
    usages = [server.client.post(CHAT, json=body).json()["usage"] for body in (trusted, chat(TEXT))]
    assert usages[0]["prompt_tokens"] < usages[1]["prompt_tokens"]
