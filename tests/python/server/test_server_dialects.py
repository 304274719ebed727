"""An answer cut anywhere, in every format of tools: a stream says what the whole answer says, in
the words of all three interfaces.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "parsers"))
from answer_texts import ANSWERS, syntax
from live_server import events_of
from test_server_responses import rebuilt
from test_server_tools import assembled

from mlc_native.parsers.reasoning import REASONING_FORMATS
from mlc_native.protocol.openai_api_protocol import ChatCompletionRequest
from mlc_native.serve.answer_plan import AnswerPlan
from mlc_native.serve.responses import ChatResponder
from mlc_native.serve.streams import AddedText
from mlc_native.server.config import ServerConfig
from mlc_native.server.messages import MessagesDialect
from mlc_native.server.openai import OpenAIDialect
from mlc_native.server.responses import ResponsesDialect

CONFIG = ServerConfig()
USER = [{"role": "user", "content": "hi"}]
USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
STOPS = ["<end>", "}}</tool_call>", "so", "a stop sequence that is long" * 4]
DIALECTS = {
    "chat": lambda stream, n: OpenAIDialect(
        "chat", {"messages": USER, "stream": stream, "n": n}, "m", CONFIG
    ),
    "messages": lambda stream, n: MessagesDialect(
        {"messages": USER, "max_tokens": 9, "stream": stream}, "m", CONFIG
    ),
    "stops": lambda stream, n: MessagesDialect(
        {"messages": USER, "max_tokens": 9, "stream": stream, "stop_sequences": STOPS}, "m", CONFIG
    ),
    "responses": lambda stream, n: ResponsesDialect({"input": "hi", "stream": stream}, "m", CONFIG),
}


def output(text: str, finish_reason: str | None = None, usage: str | None = None) -> Any:
    return SimpleNamespace(
        delta_text=text,
        delta_token_ids=[],
        finish_reason=finish_reason,
        delta_logprob_json_strs=None,
        has_scored_prompt=False,
        scored_prompt=None,
        request_final_usage_json_str=usage,
    )


def batches(pieces: list[list[str]], reason: str) -> list[list[Any]]:
    """The outputs of a request with an answer for each of the lists of pieces."""
    length = max(map(len, pieces))
    padded = [[""] * (length - len(each)) + each for each in pieces]
    last = length - 1
    return [
        *(
            [output(each[i], reason if i == last else None) for each in padded]
            for i in range(length)
        ),
        [output("", None, json.dumps(USAGE))],
    ]


def responder(plan: AnswerPlan, n: int) -> ChatResponder:
    options: Any = {"stream_options": {"include_usage": True}}
    return ChatResponder(
        ChatCompletionRequest(messages=USER, n=n, stream=True, **options), "i", "m", plan
    )


def stream_of(dialect: Any, outputs: list[list[Any]], plan: AnswerPlan, n: int) -> bytes:
    made = responder(plan, n)
    sent = dialect.opening()
    for each in outputs:
        for piece in made.pieces(each):
            is_text = isinstance(piece, AddedText)
            sent += dialect.text_events(piece) if is_text else dialect.events(piece)
    return bytes(sent + dialect.closing())


def read_chat(text: str, n: int) -> list[Any]:
    found: list[Any] = [["", "", [], None] for _ in range(n)]
    for event in events_of(text):
        for choice in event["choices"]:
            answer = found[choice["index"]]
            delta = choice["delta"]
            assert answer[3] is None
            answer[0] += delta.get("content") or ""
            answer[1] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(answer[2]):
                    answer[2].append([call["function"]["name"], ""])
                    assert call["id"]
                assert call["index"] == len(answer[2]) - 1
                answer[2][-1][1] += call["function"]["arguments"]
            answer[3] = choice["finish_reason"]
    return found


def named(text: str) -> list[Any]:
    return [json.loads(part.partition("\ndata: ")[2]) for part in text.split("\n\n")[:-1]]


def parts(answer: dict[str, Any]) -> list[Any]:
    """A message of Anthropic: reasoning, text, calls, in whatever order."""
    blocks = answer["content"]
    return [
        "".join(block.get("thinking", "") for block in blocks),
        "".join(block.get("text", "") for block in blocks),
        [(block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"],
        answer["stop_reason"],
        answer["stop_sequence"],
    ]


def items(output: list[Any]) -> list[Any]:
    return [
        "".join(
            c["text"] for item in output if item["type"] == "reasoning" for c in item["content"]
        ),
        "".join(c["text"] for item in output if item["type"] == "message" for c in item["content"]),
        [(item["name"], item["arguments"]) for item in output if item["type"] == "function_call"],
    ]


def check(name: str, fields: Any, pieces: list[list[str]], reason: str, is_named: bool) -> None:
    n = len(pieces)
    plan = AnswerPlan(syntax(name, **fields), is_named=is_named)
    outputs = batches(pieces, reason)
    whole = responder(plan, n).response(outputs)
    answer = DIALECTS["chat"](False, n).response(whole)
    expected = [
        [
            choice["message"]["content"] or "",
            choice["message"].get("reasoning") or "",
            [
                [call["function"]["name"], call["function"]["arguments"]]
                for call in choice["message"].get("tool_calls") or []
            ],
            choice["finish_reason"],
        ]
        for choice in answer["choices"]
    ]
    sent = stream_of(DIALECTS["chat"](True, n), outputs, plan, n).decode()
    assert read_chat(sent, n) == expected
    original, original_reason = pieces[:1], reason
    outputs = batches(original, reason)
    whole = responder(plan, 1).response(outputs)
    blocks = []
    for kind in ("messages", "stops"):
        if kind == "stops":
            pieces, reason = stopped(pieces[0], reason)
            outputs = batches(pieces, reason)
            whole = responder(plan, 1).response(outputs)
        message = DIALECTS[kind](False, 1).response(whole)
        events = named(stream_of(DIALECTS[kind](True, 1), outputs, plan, 1).decode())
        streamed = assembled_or_cut(events)
        assert parts(streamed) == parts(message)
        blocks.append([{**block, "id": ""} for block in streamed["content"]])
    if not any(stop in "".join(original[0]) for stop in STOPS):
        assert blocks[0] == blocks[1]
    outputs, first = batches(original, original_reason), expected[0]
    dialect = DIALECTS["responses"](True, 1)
    sent = stream_of(dialect, outputs, plan, 1).decode()
    events = named(sent)
    final = events[-1]["response"]
    assert final["output"] == rebuilt(events)
    assert items(final["output"]) == [first[1], first[0], [tuple(call) for call in first[2]]]


def stopped(pieces: list[str], reason: str) -> tuple[list[list[str]], str]:
    """What the engine makes of the pieces with STOPS."""
    text = "".join(pieces)
    ends = [text.find(stop) + len(stop) for stop in STOPS if stop in text]
    end = min(ends, default=len(text))
    begun, kept = 0, []
    for piece in pieces:
        kept.append(piece[: max(0, end - begun)])
        begun += len(piece)
    return [kept], "stop" if ends else reason


def assembled_or_cut(events: list[Any]) -> dict[str, Any]:
    for index in {e["index"] for e in events if "index" in e}:
        deltas = [e["delta"] for e in events if e.get("index") == index and "delta" in e]
        text = "".join(delta.get("partial_json", "") for delta in deltas)
        try:
            json.loads(text or "{}")
        except ValueError:  # cut by the limit of tokens
            for delta in deltas:
                delta["partial_json"] = ""
    return assembled(events)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(data=st.data())
@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_streams_say_what_whole_answers_say(name: str, data: st.DataObject) -> None:
    texts = st.lists(
        st.sampled_from(
            [text for text, _ in ANSWERS[name]] + ["<think>so", "</think>", "é🙂", "<end>", "so"]
        ),
        max_size=4,
    )
    pieces = []
    for _ in range(data.draw(st.integers(1, 3))):
        text = "".join(data.draw(texts))
        text = text[: data.draw(st.integers(0, len(text)))] if data.draw(st.booleans()) else text
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
        pieces.append([text[a:b] for a, b in pairwise([0, *cuts, len(text)])])
    reasoning = REASONING_FORMATS["harmony" if name == "harmony" else "qwen3"]
    fields = {
        "is_certain": data.draw(st.booleans()),
        "parallel": data.draw(st.booleans()),
        "reasoning": data.draw(st.sampled_from([None, reasoning])),
    }
    fields["is_reasoning"] = fields["reasoning"] is not None and data.draw(st.booleans())
    reason = data.draw(st.sampled_from(["stop", "length"]))
    check(name, fields, pieces, reason, data.draw(st.booleans()))
