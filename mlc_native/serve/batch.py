"""Batch: ``engine.generate``, the answers to any number of prompts in their order.

One thread prepares requests, hands as many to the engine as it can run (and as many again, so that
it never waits), and joins their outputs. All requests of a batch share one channel. What a prompt
costs beyond its result is independent of the number of prompts.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from mlc_native._core import Cancellation
from mlc_native._stream_bridge import CallbackStreamOutput, SyncChannel
from mlc_native.errors import (
    EngineRequestError,
    InvalidConfig,
    InvalidRequest,
    MLCNativeError,
    QueueFull,
    invalid_request,
    shown,
)
from mlc_native.protocol.chat_messages import AnswerMessage, AnswerToolCall
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import (
    ChatCompletionMessage,
    ChatCompletionRequest,
    CompletionUsage,
    LogProbsContent,
    PromptLogProbs,
    is_list,
)
from mlc_native.protocol.validation import unreadable, validated
from mlc_native.serve.arguments import GenerateArguments
from mlc_native.serve.data import Data
from mlc_native.serve.openai_engine import OpenAICall, OpenAIEngine
from mlc_native.serve.prompt_logprobs import prompt_logprobs
from mlc_native.serve.request_processing import Prompt, generation_config, random_request_id
from mlc_native.serve.responses import ChatResponder, completion_usage
from mlc_native.support.keywords import check_keywords
from mlc_native.support.terminal import stderr_is_terminal

Messages = Sequence[ChatCompletionMessage | Mapping[str, Any]]
Item = Prompt | Messages | Mapping[str, Any]
Items = Item | Iterable[Item]
Config = GenerationConfig | Mapping[str, Any]
Configs = Config | Sequence[Config] | None

MESSAGE = (ChatCompletionMessage, Mapping)
MIN_OPEN = 8  # requests in the engine
QUEUE_FULL_PAUSE_S = 0.05
_PLACEHOLDER = [{"role": "user", "content": "x"}]  # of a request that stands for its settings


# -------------------------------------------------------------------------------------- the results


@dataclass
class GenerationChoice:
    """One answer to a prompt.

    Attributes:
        text: the answer as the model wrote it, or what there is of it.
        token_ids: its tokens, without stop tokens.
        logprobs: of each token, if requested.
        finish_reason: "stop", "length", "tool_calls", "timeout", "abort" or "error".
        message: what the answer to a chat consists of: content, reasoning and calls of tools. None
            for a prompt that is no chat.
    """

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[LogProbsContent] | None = None
    finish_reason: str | None = None
    message: AnswerMessage | None = None


@dataclass
class GenerationResult:
    """What became of one prompt of ``generate``.

    ``text``, ``token_ids``, ``logprobs``, ``finish_reason``, ``reasoning_content``, ``content`` and
    ``tool_calls`` are those of the first of its n answers.

    Attributes:
        choices: the n answers; none if the prompt was refused.
        prompt_token_ids: the tokens of the prompt.
        prompt_logprobs: of each of these tokens (None of the first) and of its alternatives, by
            token id, if requested.
        usage: token counts and times; None after an error.
        error: why there is no (whole) answer, or None.
    """

    choices: list[GenerationChoice] = field(default_factory=list)
    prompt_token_ids: list[int] = field(default_factory=list)
    prompt_logprobs: PromptLogProbs | None = None
    usage: CompletionUsage | None = None
    error: MLCNativeError | None = None

    def _first(self) -> GenerationChoice:
        return self.choices[0] if self.choices else GenerationChoice(finish_reason="error")

    @property
    def text(self) -> str:
        """The text of the first answer; "" if there is none."""
        return self._first().text

    @property
    def token_ids(self) -> list[int]:
        """The tokens of the first answer."""
        return self._first().token_ids

    @property
    def logprobs(self) -> list[LogProbsContent] | None:
        """The log probabilities of the first answer; None if they were not requested."""
        return self._first().logprobs

    @property
    def finish_reason(self) -> str | None:
        """Why the first answer ended; "error" if there is none."""
        return self._first().finish_reason

    @property
    def content(self) -> str | None:
        """The first answer without reasoning and calls of tools; None if nothing is left."""
        message = self._first().message
        return self.text if message is None else message.content

    @property
    def reasoning_content(self) -> str | None:
        """The reasoning of the first answer to a chat, if the model marks it."""
        message = self._first().message
        return None if message is None else message.reasoning_content

    @property
    def tool_calls(self) -> list[AnswerToolCall] | None:
        """The calls of tools in the first answer to a chat; None if there are none."""
        message = self._first().message
        return None if message is None else message.tool_calls


@dataclass
class _OpenItem:
    """A request in the engine. A chat has a responder, which reads its answers."""

    result: GenerationResult
    responder: ChatResponder | None

    def close(self, finish_reason: str | None = None) -> None:
        """All outputs have arrived. Answers that have no finish reason get this one."""
        for choice in self.result.choices:
            reason = choice.finish_reason or finish_reason
            if self.responder is not None:
                choice.message, reason = self.responder.message(
                    choice.text, choice.token_ids, reason
                )
            choice.finish_reason = reason
        if self.result.usage is not None and self.responder is not None:
            self.responder.usage(self.result.usage)


# ------------------------------------------------------------------------------------ the arguments


def is_chat(item: object) -> bool:
    """Whether an item is a list of messages."""
    if not is_list(item) or not item:
        return False
    first = item[0]  # type: ignore[index]
    return isinstance(first, MESSAGE) and (not isinstance(first, Mapping) or "role" in first)


def as_items(prompts: Items) -> Iterable[Item]:
    """The items of ``generate``, which also takes a single one.

    Raises:
        InvalidRequest: the argument cannot be iterated.
    """
    if is_chat(prompts) or isinstance(prompts, (str, bytes, Mapping, Data)):
        return [prompts]  # type: ignore[list-item]
    if _is_token_ids(prompts):
        return [prompts]  # type: ignore[list-item]
    if not isinstance(prompts, Iterable) or getattr(prompts, "shape", None) == ():
        raise invalid_request("prompts", f'"prompts" must be a list, got {shown(prompts)}')
    return prompts  # type: ignore[return-value]


def _is_token_ids(prompts: Any) -> bool:
    """Whether a list, an array or a tensor is a single prompt. Raises InvalidRequest."""
    if is_list(prompts):
        return bool(prompts) and isinstance(prompts[0], Integral)
    if not hasattr(prompts, "tolist"):
        return False
    try:
        is_row = len(prompts.shape) == 1 and len(prompts) > 0
        return is_row and isinstance(prompts[0].tolist(), Integral)
    except Exception as error:  # what a method of a caller's object raises
        raise unreadable("prompts", error) from error


def settings_of(config: object) -> dict[str, Any]:
    """What a generation config sets, as fields of a request."""
    if config is None:
        return {}
    if not isinstance(config, GenerationConfig):
        config = GenerationConfig.of(config)  # type: ignore[arg-type]
    settings = {name: getattr(config, name) for name in config.model_fields_set}
    if "stop_strs" in settings:
        settings["stop"] = settings.pop("stop_strs")
    return settings


# ---------------------------------------------------------------------------------------- the batch


class Batch:
    """One call of ``generate``. ``run`` belongs to one thread; ``cancel`` may come from others.

    Raises:
        InvalidRequest: a setting is wrong.
        TypeError: a keyword argument does not exist.
    """

    def __init__(
        self,
        engine: OpenAIEngine,
        prompts: Items,
        configs: Configs,
        options: Mapping[str, Any],
        progress: bool | None,
    ) -> None:
        known = {*GenerateArguments.__optional_keys__, "generation_config", "progress"}
        check_keywords("generate", options, known)
        self._engine = engine
        items = as_items(prompts)
        self._total = len(items) if isinstance(items, Sequence) else None
        self._items = enumerate(zip(items, self._settings(configs, options), strict=False))
        self._progress = progress
        self._id = random_request_id("generate")
        self._results: list[GenerationResult] = []
        self._open: dict[str, _OpenItem] = {}  # by the ids of requests in the engine
        self._channel: SyncChannel | None = None
        self._waiting: tuple[int, Any] | None = None  # was refused by a full queue
        self._limit = self._max_open = MIN_OPEN
        self._cancellation = Cancellation()

    def _settings(self, configs: Configs, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The settings of each item. All are checked before the first request."""
        if not is_list(configs):
            return itertools.repeat(self._checked({**settings_of(configs), **options}))
        listed: Sequence[Any] = configs  # type: ignore[assignment]
        if len(listed) != self._total:
            raise invalid_request(
                "generation_config",
                f"there are {len(listed)} generation configs for {self._total} prompts",
            )
        return iter([self._checked({**settings_of(each), **options}) for each in listed])

    def _checked(self, settings: dict[str, Any]) -> dict[str, Any]:
        request = validated(ChatCompletionRequest, {"messages": _PLACEHOLDER, **settings})
        self._engine._check_generation_config(generation_config(request))
        return settings

    def cancel(self) -> None:
        """Makes ``run`` stop; what has not been answered is aborted."""
        self._cancellation.cancel()
        if self._channel is not None:
            self._channel.interrupt()

    def run(self) -> list[GenerationResult]:
        """Returns the results, in the order of the items."""
        self._max_open = max(MIN_OPEN, 2 * (self._engine.engine_config.max_num_sequence or 0))
        self._limit = self._max_open
        try:
            with _ProgressBar(self._total, self._progress) as bar:
                while self._fill(bar):
                    self._collect(bar)
        finally:
            if self._channel is not None:
                self._engine._close_request(self._channel)
        return self._results

    def _fill(self, bar: _ProgressBar) -> bool:
        """Hands requests to the engine. Returns whether any is in it."""
        while len(self._open) < self._limit and not self._cancellation.cancelled:
            entry = self._waiting or next(self._items, None)
            if entry is None:
                break
            self._waiting = None
            index, (item, settings) = entry
            if index == len(self._results):
                self._results.append(GenerationResult())
            try:
                self._submit(index, item, settings)
                self._limit = min(self._limit + 1, self._max_open)
            except QueueFull:  # others use the engine, too; try again when an answer is finished
                self._waiting = entry
                self._limit = max(1, len(self._open))
                if not self._open:
                    time.sleep(QUEUE_FULL_PAUSE_S)
            except (InvalidRequest, InvalidConfig) as error:
                self._results[index].error = error
                bar.update()
        return bool(self._open) and not self._cancellation.cancelled

    def _submit(self, index: int, item: Any, settings: dict[str, Any]) -> None:
        engine = self._engine
        call = self._call(f"{self._id}-{index}", item, settings)
        created = engine._request_of(call, self._cancellation)
        result = self._results[index]
        result.prompt_token_ids = call.token_ids_of(created)
        self._channel = engine._open_request(self._open_channel, created, call.setup)
        self._open[created.id] = _OpenItem(result, call.responder)

    def _call(self, request_id: str, item: Any, settings: dict[str, Any]) -> OpenAICall:
        messages = item if is_list(item) and item and isinstance(item[0], MESSAGE) else None
        if isinstance(item, Mapping):
            settings = {**settings, **item}
            messages, item = settings.pop("messages", None), settings.pop("prompt", None)
        if messages is not None:
            request = validated(ChatCompletionRequest, {**settings, "messages": messages})
            return self._engine._chat_call(request, request_id)
        request = validated(ChatCompletionRequest, {**settings, "messages": _PLACEHOLDER})
        return self._engine._prompt_call(
            *(item, generation_config(request), request_id),
            add_special_tokens=request.add_special_tokens,
        )

    def _open_channel(self, request_id: str) -> SyncChannel:
        bridge = self._engine.state.bridge
        if self._channel is None:
            return bridge.open_sync(request_id)
        bridge.join(self._channel, request_id)
        return self._channel

    def _collect(self, bar: Any) -> None:
        """Waits for outputs of one request and adds them to its result."""
        assert self._channel is not None
        try:
            outputs = self._channel.next()
        except EngineRequestError as error:
            item = self._open.pop(error.request_id)
            item.result.error = error
            item.close("error")
            bar.update()
            return
        if outputs is None:  # cancelled
            return
        request_id, usage_json = outputs[0].request_id, outputs[0].request_final_usage_json_str
        if usage_json is None:
            _add(self._open[request_id].result, outputs)
            return
        item = self._open.pop(request_id)
        usage = item.result.usage = completion_usage(usage_json)
        item.close()
        bar.add_answer(usage.completion_tokens)


def _add(result: GenerationResult, outputs: list[CallbackStreamOutput]) -> None:
    if not result.choices:
        result.choices = [GenerationChoice() for _ in outputs]
    scored = outputs[0].scored_prompt
    if scored is not None:
        result.prompt_logprobs = prompt_logprobs(scored)
    for choice, output in zip(result.choices, outputs, strict=True):
        choice.text += output.delta_text
        choice.token_ids += output.delta_token_ids
        choice.finish_reason = output.finish_reason or choice.finish_reason
        if output.delta_logprob_json_strs:
            found = [LogProbsContent.model_validate_json(s) for s in output.delta_logprob_json_strs]
            choice.logprobs = choice.logprobs or []
            choice.logprobs += found


class _ProgressBar:
    """Prompts done and tokens per second, on stderr; by default, if it is a terminal."""

    def __init__(self, total: int | None, shown: bool | None) -> None:
        self._bar: Any = None
        if stderr_is_terminal() if shown is None else shown:
            from tqdm import tqdm  # the first bar, also one that is disabled, starts a thread

            self._bar = tqdm(total=total, desc="Generating", unit="prompt")
        self._start = time.monotonic()
        self._num_tokens = 0

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_exc_info: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def update(self) -> None:
        """Counts a prompt without an answer."""
        if self._bar is not None:
            self._bar.update()

    def add_answer(self, num_tokens: int) -> None:
        """Counts a prompt with an answer."""
        if self._bar is None:
            return
        self._num_tokens += num_tokens
        rate = self._num_tokens / max(time.monotonic() - self._start, 1e-9)
        self._bar.set_postfix_str(f"{rate:,.0f} tokens/s", refresh=False)
        self._bar.update()
