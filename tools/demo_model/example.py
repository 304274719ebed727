"""What the text generator yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Turn:
    """A question and its answer; `brief` is the answer under "Answer briefly.", if it differs."""

    question: str
    answer: str
    brief: str | None = None


@dataclass(frozen=True)
class Example:
    """A chat (OpenAI messages, perhaps with tool schemas) or, if `text` is set, a document."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    text: str | None = None
