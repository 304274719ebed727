"""Chats with tools: schemas, calls in <tool_call> tags, answers that use a tool's result."""

from __future__ import annotations

import json
import random
from typing import Any

from .example import Example, Turn

SKIES = ["sunny", "cloudy", "rainy", "windy", "snowy"]


def schema(name: str, description: str, parameters: dict[str, str]) -> dict[str, Any]:
    """An OpenAI function schema whose parameters are all required."""
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": description,
            "parameters": {
                "type": "object",
                "properties": {key: {"type": kind} for key, kind in parameters.items()},
                "required": list(parameters),
            },
        },
    }


TOOLS = {
    "get_weather": schema("get_weather", "Get the weather of a city.", {"city": "string"}),
    "get_time": schema("get_time", "Get the local time of a city.", {"city": "string"}),
    "add": schema("add", "Add two numbers.", {"a": "integer", "b": "integer"}),
    "send_message": schema("send_message", "Send a message to a person.",
                           {"to": "string", "text": "string"}),
    "search": schema("search", "Search the web.", {"query": "string"}),
}  # fmt: skip


def call_text(name: str, arguments: dict[str, Any]) -> str:
    """How the model writes a call."""
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>{call}</tool_call>"


def _use(rng: random.Random, name: str, city: str, person: str) -> tuple[str, dict, dict, str]:
    """A question for tool `name`: (question, arguments, result, answer after the result)."""
    if name == "get_weather":
        degrees, sky = rng.randint(0, 35), rng.choice(SKIES)
        question = rng.choice([f"What is the weather in {city}?", f"How is the weather in {city}?"])
        result = {"temperature": degrees, "sky": sky}
        return question, {"city": city}, result, f"It is {degrees} degrees and {sky} in {city}."
    if name == "get_time":
        clock = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"
        question = f"What time is it in {city}?"
        return question, {"city": city}, {"time": clock}, f"It is {clock} in {city}."
    if name == "add":
        a, b = rng.randint(100, 999), rng.randint(100, 999)
        question = f"Please add {a} and {b}."
        return question, {"a": a, "b": b}, {"sum": a + b}, f"The sum is {a + b}."
    if name == "send_message":
        words = rng.choice(["hello", "good morning", "see you soon", "happy birthday", "thank you"])
        arguments = {"to": person, "text": words}
        return f"Send {words} to {person}.", arguments, {"sent": True}, "The message was sent."
    topic = rng.choice(["cats", "the moon", "old books", "green tea", "fast trains", "music"])
    question = f"Search the web for {topic}."
    return question, {"query": topic}, {"hits": 3}, f"I found 3 pages about {topic}."


def tool_chat(rng: random.Random, city: str, person: str, other: Turn) -> Example:
    """A chat with one to three tools listed; mostly a call, sometimes `other`, which needs none."""
    names = rng.sample(sorted(TOOLS), rng.choice([1, 1, 2, 3]))
    tools = [TOOLS[name] for name in names]
    messages: list[dict[str, Any]] = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": "You are a helpful assistant."})
    if rng.random() < 0.2 and "weather" not in other.question:
        messages.append({"role": "user", "content": other.question})
        messages.append({"role": "assistant", "content": other.answer})
        return Example(messages, tools)
    name = rng.choice(names)
    question, arguments, result, answer = _use(rng, name, city, person)
    messages.append({"role": "user", "content": question})
    messages.append({"role": "assistant", "content": call_text(name, arguments)})
    if rng.random() < 0.5:
        messages.append({"role": "tool", "content": json.dumps(result)})
        messages.append({"role": "assistant", "content": answer})
    return Example(messages, tools)
