"""OpenAI's objects for answers: completions, chat completions, and the chunks of their streams."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import BaseModel, Field

from mlc_native.protocol.chat_messages import AnswerMessage, ChatCompletionDelta
from mlc_native.protocol.logprobs import CompletionLogProbs, LogProbs, PromptLogProbs
from mlc_native.protocol.usage import CompletionUsage

FinishReason = Literal["stop", "length", "tool_calls", "abort", "error", "timeout"]


def _now() -> int:
    return int(time.time())


class CompletionResponseChoice(BaseModel):
    """One answer, or what a stream adds to it."""

    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: CompletionLogProbs | None = None
    prompt_logprobs: PromptLogProbs | None = None
    text: str
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class CompletionResponse(BaseModel):
    """A completion, or a chunk of one; the usage chunk has no choices."""

    id: str
    choices: list[CompletionResponseChoice]
    created: int = Field(default_factory=_now)
    model: str | None = None
    object: str = "text_completion"
    usage: CompletionUsage | None = None


class ChatCompletionResponseChoice(BaseModel):
    """One answer."""

    finish_reason: FinishReason | None = None
    index: int = 0
    message: AnswerMessage
    logprobs: LogProbs | None = None
    token_ids: list[int] | None = None


class ChatCompletionStreamResponseChoice(BaseModel):
    """What a chunk adds to one answer."""

    finish_reason: FinishReason | None = None
    index: int = 0
    delta: ChatCompletionDelta
    logprobs: LogProbs | None = None
    token_ids: list[int] | None = None


class ChatCompletionResponse(BaseModel):
    """A whole chat completion."""

    id: str
    choices: list[ChatCompletionResponseChoice]
    prompt_logprobs: PromptLogProbs | None = None
    created: int = Field(default_factory=_now)
    model: str | None = None
    system_fingerprint: str = ""
    object: Literal["chat.completion"] = "chat.completion"
    usage: CompletionUsage | None = None
    prompt_token_ids: list[int] | None = None


class ChatCompletionStreamResponse(BaseModel):
    """A chunk of a chat completion; the usage chunk has no choices.

    The first chunk has ``prompt_logprobs`` if they are requested.
    """

    id: str
    choices: list[ChatCompletionStreamResponseChoice]
    prompt_logprobs: PromptLogProbs | None = None
    created: int = Field(default_factory=_now)
    model: str | None = None
    system_fingerprint: str = ""
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: CompletionUsage | None = None
    prompt_token_ids: list[int] | None = None
