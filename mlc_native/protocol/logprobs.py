"""Log probabilities of answers and prompts, in OpenAI's two forms and in that of vLLM."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, Field


class TopLogProbs(BaseModel):
    """An alternative token; ``logprob`` is a natural logarithm, ``bytes`` the token's UTF-8.

    ``token_id`` is for programs and not part of what is serialized, as OpenAI's object has none.
    """

    token: str
    logprob: float
    bytes: list[int] | None = None
    token_id: int | None = Field(default=None, exclude=True)


class LogProbsContent(TopLogProbs):
    """A generated token and the most likely ones at its place, most likely first."""

    top_logprobs: list[TopLogProbs] = []


class LogProbs(BaseModel):
    """Log probabilities of a chat answer, one entry per token."""

    content: list[LogProbsContent]


class CompletionLogProbs(BaseModel):
    """Log probabilities of a completion; lists of equal length, one entry per token.

    With ``echo``, the tokens of the prompt come first; the first of them has None.
    ``text_offset`` counts characters from the start of the choice's text. ``top_logprobs`` has the
    generated token and the most likely ones by their text; a token whose text another one has
    already is ``"token_id:123"``.
    """

    text_offset: list[int] | None = None
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


@dataclass(slots=True)
class PromptLogProb:
    """A token of a prompt or an alternative; ``rank`` 1 is the most likely.

    ``rank`` is None for a token of the prompt that is not among the alternatives. A long prompt has
    tens of thousands of these objects, so they are small.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


# For each token of a prompt, itself and its alternatives by token id; None for the first.
PromptLogProbs = list[dict[int, PromptLogProb] | None]
