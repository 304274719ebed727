"""Turns streamed deltas into OpenAI's response objects, for all façades."""

from __future__ import annotations

import json
import time
from typing import Any

from mlc_native._stream_bridge import CallbackStreamOutput
from mlc_native.parsers.answer import Delta, TextDelta
from mlc_native.protocol.chat_messages import AnswerMessage, ChatCompletionDelta
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionRequest,
    ChatCompletionResponse,
    ChatCompletionResponseChoice,
    ChatCompletionStreamResponse,
    ChatCompletionStreamResponseChoice,
    CompletionLogProbs,
    CompletionRequest,
    CompletionResponse,
    CompletionResponseChoice,
    CompletionTokensDetails,
    CompletionUsage,
    LogProbs,
    PromptLogProbs,
    PromptTokensDetails,
)
from mlc_native.serve.answer_plan import AnswerPlan
from mlc_native.serve.chat_messages import (
    MessageStream,
    message_delta,
    text_delta,
    whole_message,
)
from mlc_native.serve.logprobs import (
    AnswerOffsets,
    chat_logprobs,
    completion_logprobs,
    joined_logprobs,
    no_completion_logprobs,
)
from mlc_native.serve.prompt_logprobs import (
    ScoredPrompt,
    echo_logprobs,
    prompt_logprobs,
)
from mlc_native.serve.streams import AddedText
from mlc_native.tokenizers import Tokenizer


def completion_usage(usage_json: str) -> CompletionUsage:
    """The usage of a finished request."""
    usage = CompletionUsage(**json.loads(usage_json))
    cached_tokens = (usage.extra or {}).get("cached_tokens", 0)
    usage.prompt_tokens_details = PromptTokensDetails(cached_tokens=cached_tokens)
    return usage


class _Answer:
    """The output of one sequence so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.token_ids: list[int] = []
        self.logprobs: list[str] = []
        self.scored_prompt: ScoredPrompt | None = None
        self.finish_reason: Any = None

    def add(self, output: CallbackStreamOutput) -> None:
        self.texts.append(output.delta_text)
        self.token_ids += output.delta_token_ids
        if output.delta_logprob_json_strs:
            self.logprobs += output.delta_logprob_json_strs
        if output.has_scored_prompt:
            self.scored_prompt = output.scored_prompt
        self.finish_reason = output.finish_reason or self.finish_reason


class ChatResponder:
    """Makes the objects of one chat completion: chunks of a stream, or the response."""

    def __init__(
        self,
        request: ChatCompletionRequest,
        request_id: str,
        model_name: str,
        plan: AnswerPlan | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> None:
        self._id = request_id
        self._model = request.model or model_name
        self._created = int(time.time())
        self._include_usage = _include_usage(request)
        self.prompt_token_ids: list[int] | None = None  # if the response is to have token ids
        self._plan = plan or AnswerPlan()
        counted = tokenizer if self._plan.syntax.reasoning is not None else None
        self._token_table = counted.token_table if counted is not None else None
        self._messages: list[MessageStream] = []  # of a stream, one per sequence
        self._has_logprobs = request.logprobs
        self._num_prompt_logprobs = request.prompt_logprobs
        self._prompt_logprobs: PromptLogProbs | None = None  # of the next chunk
        self._has_chunks = False

    def opening(self) -> list[ChatCompletionStreamResponse]:
        """Chunks before the first output."""
        return []

    def pieces(
        self, outputs: list[CallbackStreamOutput]
    ) -> list[ChatCompletionStreamResponse | AddedText]:
        """See Responder."""
        usage_json = outputs[0].request_final_usage_json_str
        if usage_json is not None:
            if not self._include_usage:
                return []
            return [self._chunk([], self.usage(completion_usage(usage_json)))]
        self._messages = self._messages or self._new_messages(len(outputs))
        scored = outputs[0].scored_prompt
        if scored is not None:
            self._prompt_logprobs = prompt_logprobs(scored, self._num_prompt_logprobs)
        return [
            piece for index, output in enumerate(outputs) for piece in self._pieces(index, output)
        ]

    def chunk(self, added: AddedText) -> ChatCompletionStreamResponse:
        """See Responder."""
        return self._delta_chunk(added.choice, text_delta(added.kind, added.text))

    def _pieces(
        self, index: int, output: CallbackStreamOutput
    ) -> list[ChatCompletionStreamResponse | AddedText]:
        """One piece per delta."""
        message = self._messages[index]
        deltas = message.add(output.delta_text, output.delta_token_ids, output.finish_reason)
        has_prompt = self.prompt_token_ids is not None or self._prompt_logprobs is not None
        if not has_prompt and _has_only_text(output):
            return [
                AddedText(index, delta.kind, delta.text)
                if isinstance(delta, TextDelta)
                else self._delta_chunk(index, message_delta(delta))
                for delta in deltas
            ]
        return [self._chunk([choice], None) for choice in self._choices(index, output, deltas)]

    def _choices(
        self, index: int, output: CallbackStreamOutput, deltas: list[Delta]
    ) -> list[ChatCompletionStreamResponseChoice]:
        """One choice per delta. The first has what belongs to the tokens, the last the end."""
        token_ids = _returned(output.delta_token_ids, self.prompt_token_ids)
        parts = [message_delta(delta) for delta in deltas]
        if not parts and (output.finish_reason or output.delta_logprob_json_strs or token_ids):
            parts = [text_delta("content", "")]
        choices = [ChatCompletionStreamResponseChoice(index=index, delta=each) for each in parts]
        if choices:
            choices[0].logprobs = chat_logprobs(output.delta_logprob_json_strs)
            choices[0].token_ids = token_ids
            finish_reason = self._messages[index].finish_reason(output.finish_reason)
            choices[-1].finish_reason = finish_reason
        return choices

    def _delta_chunk(self, index: int, delta: ChatCompletionDelta) -> ChatCompletionStreamResponse:
        return self._chunk([ChatCompletionStreamResponseChoice(index=index, delta=delta)], None)

    def response(self, outputs: list[list[CallbackStreamOutput]]) -> ChatCompletionResponse:
        """The response, from all batches of outputs."""
        answers, usage = _collect(outputs)
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        response = ChatCompletionResponse(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage and self.usage(usage),
            prompt_token_ids=self.prompt_token_ids,
        )
        scored = answers[0].scored_prompt
        if scored is not None:  # the constructor would check and copy them
            response.prompt_logprobs = prompt_logprobs(scored, self._num_prompt_logprobs)
        return response

    def _new_messages(self, count: int) -> list[MessageStream]:
        return [MessageStream(self._plan, self._token_table) for _ in range(count)]

    def message(
        self, text: str, token_ids: list[int], finish_reason: Any
    ) -> tuple[AnswerMessage, Any]:
        """The message of the next sequence as a whole, and its finish reason."""
        self._messages += self._new_messages(1)
        return whole_message(self._messages[-1], text, token_ids, finish_reason)

    def usage(self, usage: CompletionUsage) -> CompletionUsage:
        """The usage with the tokens of the reasoning of all messages so far."""
        counts = [message.reasoning_tokens for message in self._messages]
        known = [count for count in counts if count is not None]
        if known:
            details = usage.completion_tokens_details or CompletionTokensDetails()
            details.reasoning_tokens = sum(known)
            usage.completion_tokens_details = details
        return usage

    def _choice(self, index: int, answer: _Answer) -> ChatCompletionResponseChoice:
        text = "".join(answer.texts)
        message, finish_reason = self.message(text, answer.token_ids, answer.finish_reason)
        return ChatCompletionResponseChoice(
            index=index,
            finish_reason=finish_reason,
            message=message,
            logprobs=chat_logprobs(answer.logprobs) or self._no_logprobs(),
            token_ids=_returned(answer.token_ids, self.prompt_token_ids),
        )

    def _no_logprobs(self) -> LogProbs | None:
        """Those of an answer without a token: clients read them if they have asked for them."""
        return LogProbs(content=[]) if self._has_logprobs else None

    def _chunk(
        self, choices: list[ChatCompletionStreamResponseChoice], usage: CompletionUsage | None
    ) -> ChatCompletionStreamResponse:
        token_ids = None if self._has_chunks else self.prompt_token_ids
        self._has_chunks = True
        chunk = ChatCompletionStreamResponse(
            id=self._id,
            created=self._created,
            model=self._model,
            choices=choices,
            usage=usage,
            prompt_token_ids=token_ids,
        )
        chunk.prompt_logprobs, self._prompt_logprobs = self._prompt_logprobs, None
        return chunk


class CompletionResponder:
    """Makes the objects of one completion: chunks of a stream, or the response.

    ``echo`` is text in front of every answer: the prompt, if the request asks for it.
    ``first_index`` is the index of the first choice, since a request may have several prompts.
    """

    def __init__(
        self,
        request: CompletionRequest,
        request_id: str,
        model_name: str,
        *,
        echo: str,
        first_index: int = 0,
    ) -> None:
        self._id = request_id
        self._model = request.model or model_name
        self._n = request.n
        self._created = int(time.time())
        self._include_usage = _include_usage(request)
        self._prefix = echo
        self._first_index = first_index
        self.prompt_token_ids: list[int] | None = None  # if the response is to have token ids
        self._num_prompt_logprobs = request.prompt_logprobs
        self._num_echoed_logprobs = request.logprobs if request.echo else None
        self._prompt_is_delivered = False
        self._has_logprobs = request.logprobs is not None
        self._offsets: dict[int, AnswerOffsets] = {}  # of a stream with logprobs, per choice
        self._begun: set[int] = set()  # choices that have a chunk

    def opening(self) -> list[CompletionResponse]:
        """Chunks before the first output: an echoed prompt without log-probabilities."""
        is_scored = (self._num_prompt_logprobs, self._num_echoed_logprobs) != (None, None)
        return [] if is_scored else self._prompt_chunks(None)

    def pieces(self, outputs: list[CallbackStreamOutput]) -> list[CompletionResponse | AddedText]:
        """See Responder."""
        usage_json = outputs[0].request_final_usage_json_str
        if usage_json is not None:
            return [*self.usage_chunks(completion_usage(usage_json))]
        pieces: list[CompletionResponse | AddedText] = []
        pieces += self._prompt_chunks(outputs[0].scored_prompt)
        for index, output in enumerate(outputs):
            text = output.delta_text
            if self._has_logprobs:
                self._offsets_of(index).add_text(text)
            if self.prompt_token_ids is None and _has_only_text(output):
                if text:
                    pieces.append(AddedText(self._first_index + index, "content", text))
            elif (
                text
                or output.finish_reason
                or output.delta_logprob_json_strs
                or _returned(output.delta_token_ids, self.prompt_token_ids)
            ):
                pieces.append(self._response([self._choice(index, output)], None))
        return pieces

    def chunk(self, added: AddedText) -> CompletionResponse:
        """See Responder."""
        choice = CompletionResponseChoice(index=added.choice, text=added.text)
        return self._response([choice], None)

    def usage_chunks(self, usage: CompletionUsage) -> list[CompletionResponse]:
        """The last chunk, if the request asks for it."""
        return [self._response([], usage)] if self._include_usage else []

    def response(self, outputs: list[list[CallbackStreamOutput]]) -> CompletionResponse:
        """The response, from all batches of outputs."""
        answers, usage = _collect(outputs)
        echoed, of_prompt = self._prompt_fields(answers[0].scored_prompt)
        choices = [
            CompletionResponseChoice(
                index=self._first_index + index,
                finish_reason=answer.finish_reason,
                text=self._prefix + "".join(answer.texts),
                logprobs=joined_logprobs(echoed, self._whole_logprobs(answer)),
                token_ids=_returned(answer.token_ids, self.prompt_token_ids),
                prompt_token_ids=self.prompt_token_ids,
            )
            for index, answer in enumerate(answers)
        ]
        for choice in choices:  # the constructor would check and copy them
            choice.prompt_logprobs = of_prompt
        return self._response(choices, usage)

    def _whole_logprobs(self, answer: _Answer) -> CompletionLogProbs | None:
        offsets = AnswerOffsets(len(self._prefix))
        offsets.add_text("".join(answer.texts))
        found = completion_logprobs(answer.logprobs, offsets)
        return found or (no_completion_logprobs() if self._has_logprobs else None)

    def _prompt_fields(
        self, scored: ScoredPrompt | None
    ) -> tuple[CompletionLogProbs | None, PromptLogProbs | None]:
        """The log-probabilities that are echoed, and ``prompt_logprobs``."""
        echoed = of_prompt = None
        if scored is not None and self._num_echoed_logprobs is not None:
            echoed = echo_logprobs(scored, self._prefix, self._num_echoed_logprobs)
        if scored is not None and self._num_prompt_logprobs is not None:
            of_prompt = prompt_logprobs(scored, self._num_prompt_logprobs)
        return echoed, of_prompt

    def _prompt_chunks(self, scored: ScoredPrompt | None) -> list[CompletionResponse]:
        """The chunks with what there is of the prompt, once."""
        if self._prompt_is_delivered or not (self._prefix or scored):
            return []
        self._prompt_is_delivered = True
        echoed, of_prompt = self._prompt_fields(scored)
        choices = [
            CompletionResponseChoice(
                index=self._first_index + i,
                text=self._prefix,
                logprobs=echoed,
                prompt_token_ids=self._prompt_ids_of_first_chunk(i),
            )
            for i in range(self._n)
        ]
        for choice in choices:
            choice.prompt_logprobs = of_prompt
        return [self._response([choice], None) for choice in choices]

    def _prompt_ids_of_first_chunk(self, index: int) -> list[int] | None:
        """``prompt_token_ids`` if a chunk is the first of its choice."""
        if index in self._begun:
            return None
        self._begun.add(index)
        return self.prompt_token_ids

    def _choice(self, index: int, output: CallbackStreamOutput) -> CompletionResponseChoice:
        return CompletionResponseChoice(
            index=self._first_index + index,
            finish_reason=output.finish_reason,
            text=output.delta_text,
            logprobs=completion_logprobs(output.delta_logprob_json_strs, self._offsets_of(index)),
            token_ids=_returned(output.delta_token_ids, self.prompt_token_ids),
            prompt_token_ids=self._prompt_ids_of_first_chunk(index),
        )

    def _offsets_of(self, index: int) -> AnswerOffsets:
        return self._offsets.setdefault(index, AnswerOffsets(len(self._prefix)))

    def _response(
        self, choices: list[CompletionResponseChoice], usage: CompletionUsage | None
    ) -> CompletionResponse:
        return CompletionResponse(
            id=self._id, created=self._created, model=self._model, choices=choices, usage=usage
        )


def _returned(token_ids: list[int], prompt_token_ids: list[int] | None) -> list[int] | None:
    """Token ids of an answer for a response; None unless it is to have them."""
    return token_ids if prompt_token_ids is not None else None


def _has_only_text(output: CallbackStreamOutput) -> bool:
    """Whether an output has nothing except a text and its tokens."""
    return output.finish_reason is None and not output.delta_logprob_json_strs


def _include_usage(request: ChatCompletionRequest | CompletionRequest) -> bool:
    return bool(request.stream_options and request.stream_options.include_usage)


def _collect(
    batches: list[list[CallbackStreamOutput]],
) -> tuple[list[_Answer], CompletionUsage | None]:
    """Joins the batches of a finished request: one answer per sequence, and the usage."""
    answers: list[_Answer] = []
    usage = None
    for outputs in batches:
        if outputs[0].request_final_usage_json_str is not None:
            usage = completion_usage(outputs[0].request_final_usage_json_str)
            continue
        if not answers:
            answers = [_Answer() for _ in outputs]
        for answer, output in zip(answers, outputs, strict=True):
            answer.add(output)
    return answers, usage
