"""The log-probabilities of an answer's tokens as OpenAI's objects."""

from __future__ import annotations

import codecs

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


class AnswerOffsets:
    """Where the tokens of an answer begin in the text of its choice, in characters.

    A character belongs to the token with its first byte. A token that the text does not show (a
    special one) has no width, nor has the space that a tokenizer strips from the first token.

    Args:
        offset: the characters in front of the answer.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._text, self._at = "", 0  # the tokens so far end at self._at
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add_text(self, text: str) -> None:
        """More of the answer, at the latest with the tokens that it is of."""
        self._text, self._at = self._text[self._at :] + text, 0

    def next(self, token: bytes) -> int:
        """The offset of the next token. Bytes of a character that is not complete may follow."""
        state = self._decoder.getstate()
        offset = self._offset + bool(state[0])
        for shown in (token, token.removeprefix(b" ")):
            text = self._decoder.decode(shown)
            if self._text.startswith(text, self._at):
                self._at += len(text)
                self._offset += len(text)
                break
            self._decoder.setstate(state)
        return offset


def no_completion_logprobs() -> CompletionLogProbs:
    """Those of no token."""
    return CompletionLogProbs(text_offset=[], token_logprobs=[], tokens=[], top_logprobs=[])


def completion_logprobs(
    logprob_json_strs: list[str] | None, offsets: AnswerOffsets
) -> CompletionLogProbs | None:
    """Lists over tokens, whose text has been added to ``offsets``."""
    if not logprob_json_strs:
        return None
    logprobs = no_completion_logprobs()
    for string in logprob_json_strs:
        content = LogProbsContent.model_validate_json(string)
        assert logprobs.text_offset is not None
        logprobs.text_offset.append(offsets.next(bytes(content.bytes or [])))
        logprobs.tokens.append(content.token)
        logprobs.token_logprobs.append(content.logprob)
        logprobs.top_logprobs.append(top_logprobs_by_text(content))
    return logprobs
