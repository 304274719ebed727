"""Calls of tools and reasoning over HTTP: whole answers and streams say the same."""

from __future__ import annotations

from typing import Any

from live_server import USER

THOUGHT = "<think>\nLook it up.\n</think>\n\n"
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
TEMPLATE = "{{ messages[0].content }}{{ tools }}{# <think> <tool_call> #}"


def test_calls_and_reasoning(serve: Any) -> None:
    server = serve(answer=f"{THOUGHT}So:\n{CALL}\n{CALL}", chat_template=TEMPLATE)
    body = {"messages": USER, "tools": TOOLS}
    choice = server.chat(**body)["choices"][0]
    message = choice["message"]
    assert choice["finish_reason"] == "tool_calls"
    assert message["reasoning"] == message["reasoning_content"] == "Look it up."
    assert message["content"] == "So:\n"
    assert [call["function"] for call in message["tool_calls"]] == [
        {"name": "weather", "arguments": '{"city": "Paris"}'}
    ] * 2

    joined: dict[str, Any] = {"content": "", "reasoning": "", "calls": []}
    for event in server.stream("/v1/chat/completions", body):
        if not isinstance(event, dict):
            continue
        (choice,) = event["choices"]
        delta = choice["delta"]
        joined["content"] += delta.get("content") or ""
        joined["reasoning"] += delta.get("reasoning") or ""
        for call in delta.get("tool_calls") or []:
            if call["index"] == len(joined["calls"]):
                assert call["type"] == "function"
                assert call["id"]
                joined["calls"].append({"name": call["function"]["name"], "arguments": ""})
            joined["calls"][call["index"]]["arguments"] += call["function"].get("arguments", "")
    assert choice["finish_reason"] == "tool_calls"
    assert joined["content"] == message["content"]
    assert joined["reasoning"] == message["reasoning"]
    assert joined["calls"] == [call["function"] for call in message["tool_calls"]]


def test_tools_that_cannot_be_honoured(serve: Any) -> None:
    server = serve(answer="ok")
    answer = server.post("/v1/chat/completions", {"messages": USER, "tools": TOOLS})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "tools"
