"""The log-probabilities of a prompt, in vLLM's form and as OpenAI's completions echo them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mlc_native.protocol.openai_api_protocol import (
    CompletionLogProbs,
    LogProbsContent,
    PromptLogProb,
    PromptLogProbs,
)

# The engine's form: the JSON of a LogProbsContent for each token of the prompt. The first token has
# no log-probability.
ScoredPrompt = Sequence[str]


def prompt_logprobs(scored: ScoredPrompt, num_top: int | None = None) -> PromptLogProbs:
    """For each token an object by token id: the token itself, then its alternatives by rank.

    Args:
        num_top: the number of alternatives; default: all that the engine was asked for.
    """
    entries: PromptLogProbs = [None]
    for content_json in scored[1:]:
        content = json.loads(content_json)
        ranked = content["top_logprobs"][:num_top]
        ranks = {top["token_id"]: rank for rank, top in enumerate(ranked, start=1)}
        entries.append(
            {
                token["token_id"]: PromptLogProb(
                    logprob=token["logprob"],
                    rank=ranks.get(token["token_id"]),
                    decoded_token=token["token"],
                )
                for token in (content, *ranked)
            }
        )
    return entries


def top_logprobs_by_text(content: LogProbsContent) -> dict[str, float]:
    """The token and its alternatives. None is lost to another one of the same text."""
    by_text = {content.token: content.logprob}
    for top in content.top_logprobs:
        if top.token_id != content.token_id:
            name = f"token_id:{top.token_id}" if top.token in by_text else top.token
            by_text[name] = top.logprob
    return by_text


def echo_logprobs(scored: ScoredPrompt, text: str, num_top: int) -> CompletionLogProbs:
    """The logprobs of an echoed prompt; None for the first token.

    Args:
        text: the prompt as it is echoed.
        num_top: as for ``prompt_logprobs``.
    """
    contents = [LogProbsContent.model_validate_json(content_json) for content_json in scored]
    logprobs = CompletionLogProbs(
        text_offset=text_offsets([bytes(content.bytes or []) for content in contents], text),
        token_logprobs=[None],
        tokens=[content.token for content in contents],
        top_logprobs=[None],
    )
    for content in contents[1:]:
        logprobs.token_logprobs.append(content.logprob)
        content.top_logprobs = content.top_logprobs[:num_top]
        logprobs.top_logprobs.append(top_logprobs_by_text(content))
    return logprobs


def text_offsets(tokens: Sequence[bytes], text: str) -> list[int]:
    """Where each token of a prompt begins in its text, in characters.

    A token that the text does not show has no width: one that was put in front of it, or a special
    token that the echo leaves out. Of a truncated prompt, the tokens are the end of the text.
    """
    encoded = text.encode()
    at = max(0, len(encoded) - sum(map(len, tokens)))
    offsets = []
    num_characters = len(encoded[:at].decode(errors="ignore"))
    for token in tokens:
        offsets.append(num_characters)
        if not encoded.startswith(token, at):
            token = token.removeprefix(b" ")  # which the decoder strips from a text
            if not encoded.startswith(token, at):
                continue
        at += len(token)
        # A character belongs to the token with its first byte.
        num_characters += sum(byte & 0xC0 != 0x80 for byte in token)
    return offsets
