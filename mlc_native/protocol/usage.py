"""CompletionUsage: what a finished request has used."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from pydantic import BaseModel, Field


class PromptTokensDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int = 0


class CompletionTokensDetails(BaseModel):
    """Of the answer's tokens, ``reasoning_tokens`` are those up to the end of its reasoning.

    The others are there if the request has a ``prediction``: tokens of it that became part of the
    answer, and tokens of it that were tried and did not.
    """

    reasoning_tokens: int = 0
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class CompletionUsage(BaseModel):
    """Token counts of a finished request; ``extra`` holds its times (seconds) and rates.

    ``completion_tokens_details`` is there if the model marks reasoning or the request has a
    ``prediction``.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = Field(default_factory=PromptTokensDetails)
    completion_tokens_details: CompletionTokensDetails | None = None
    extra: dict[str, Any] | None = None

    @cached_property
    def of_prompts(self) -> list[CompletionUsage]:
        """The usage of each prompt if this is the sum of several. No field: not in the JSON."""
        return []
