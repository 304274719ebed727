"""What the demo model answers: one chat for all libraries."""

from __future__ import annotations

from typing import Any

KEY = "secret"
WAIT_S = 120

QUESTION = "What is the capital of France?"
ANSWER = "The capital of France is Paris."
ASK = [{"role": "user", "content": QUESTION}]

TOOL = "get_weather"
TOOL_DESCRIPTION = "Get the weather of a city."
TOOL_QUESTION = "What is the weather in Paris?"
TOOL_ARGUMENTS = {"city": "Paris"}
TOOL_RESULT = '{"temperature": 17, "sky": "sunny"}'
TOOL_ANSWER = "It is 17 degrees and sunny in Paris."
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {"name": TOOL, "description": TOOL_DESCRIPTION, "parameters": PARAMETERS},
    }
]

PERSON_QUESTION = "Give me a JSON object with name and age for Ella, 52."
