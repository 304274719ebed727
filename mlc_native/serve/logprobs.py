"""The log-probabilities of an answer's tokens as OpenAI's objects."""

from __future__ import annotations

from mlc_native.protocol.openai_api_protocol import CompletionLogProbs, LogProbs, LogProbsContent
from mlc_native.serve.prompt_logprobs import top_logprobs_by_text


def chat_logprobs(logprob_json_strs: list[str] | None) -> LogProbs | None:
    """Those of a chat's tokens; None if there are none."""
    if not logprob_json_strs:
        return None
    return LogProbs(content=[LogProbsContent.model_validate_json(s) for s in logprob_json_strs])


def joined_logprobs(
    first: CompletionLogProbs | None, second: CompletionLogProbs | None
) -> CompletionLogProbs | None:
    """The logprobs of a text that continues another one. Both are left as they are."""
    if first is None or second is None:
        return first or second
    return CompletionLogProbs(
        text_offset=[*(first.text_offset or []), *(second.text_offset or [])],
        token_logprobs=first.token_logprobs + second.token_logprobs,
        tokens=first.tokens + second.tokens,
        top_logprobs=first.top_logprobs + second.top_logprobs,
    )


def completion_logprobs(
    logprob_json_strs: list[str] | None, offset: int
) -> CompletionLogProbs | None:
    """Lists over tokens. ``offset`` is the position of the first token's text in the choice."""
    if not logprob_json_strs:
        return None
    logprobs = CompletionLogProbs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])
    for string in logprob_json_strs:
        content = LogProbsContent.model_validate_json(string)
        assert logprobs.text_offset is not None
        logprobs.text_offset.append(offset)
        logprobs.tokens.append(content.token)
        logprobs.token_logprobs.append(content.logprob)
        logprobs.top_logprobs.append(top_logprobs_by_text(content))
        offset += len(content.token)
    return logprobs
