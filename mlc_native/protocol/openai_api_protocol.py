"""OpenAI's requests: completions and chat completions. Its responses can be imported from here.

Requests also take the other fields of SamplingOptions, ``ignore_eos`` and ``debug_config``. A field
that is not known is an error, never ignored. Ranges that OpenAI defines are checked here;
everything else (also NaN) by the engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, islice
from numbers import Integral
from typing import Any, Literal, cast

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)

from mlc_native.errors import shown
from mlc_native.protocol.chat_messages import (
    ChatCompletionMessage,
    ChatTool,
)
from mlc_native.protocol.chat_messages import ChatFunction as ChatFunction
from mlc_native.protocol.chat_messages import ChatFunctionCall as ChatFunctionCall
from mlc_native.protocol.chat_messages import ChatToolCall as ChatToolCall
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import SamplingOptions
from mlc_native.protocol.logprobs import CompletionLogProbs as CompletionLogProbs
from mlc_native.protocol.logprobs import LogProbs as LogProbs
from mlc_native.protocol.logprobs import LogProbsContent as LogProbsContent
from mlc_native.protocol.logprobs import PromptLogProb as PromptLogProb
from mlc_native.protocol.logprobs import PromptLogProbs as PromptLogProbs
from mlc_native.protocol.logprobs import TopLogProbs as TopLogProbs
from mlc_native.protocol.mlc_llm import ListResponse as ListResponse
from mlc_native.protocol.mlc_llm import MLCChatChecks
from mlc_native.protocol.mlc_llm import ModelResponse as ModelResponse
from mlc_native.protocol.mlc_llm import (
    openai_api_get_unsupported_fields as openai_api_get_unsupported_fields,
)
from mlc_native.protocol.openai_responses import ChatCompletionResponse as ChatCompletionResponse
from mlc_native.protocol.openai_responses import (
    ChatCompletionResponseChoice as ChatCompletionResponseChoice,
)
from mlc_native.protocol.openai_responses import (
    ChatCompletionStreamResponse as ChatCompletionStreamResponse,
)
from mlc_native.protocol.openai_responses import (
    ChatCompletionStreamResponseChoice as ChatCompletionStreamResponseChoice,
)
from mlc_native.protocol.openai_responses import CompletionResponse as CompletionResponse
from mlc_native.protocol.openai_responses import (
    CompletionResponseChoice as CompletionResponseChoice,
)
from mlc_native.protocol.openai_responses import FinishReason as FinishReason
from mlc_native.protocol.response_format import RequestResponseFormat as RequestResponseFormat
from mlc_native.protocol.usage import CompletionTokensDetails as CompletionTokensDetails
from mlc_native.protocol.usage import CompletionUsage as CompletionUsage
from mlc_native.protocol.usage import PromptTokensDetails as PromptTokensDetails
from mlc_native.protocol.validation import FieldError

MAX_PROMPT_MEMBERS = 1 << 24  # more tokens than any model takes, or prompts
COMPLETION_MAX_TOP_LOGPROBS = 5
CHAT_COMPLETION_MAX_TOP_LOGPROBS = 20
MESSAGES_PER_SLICE = 512

# The options of SamplingOptions that OpenAI has, too; create() takes the others in extra_body.
OPENAI_OPTIONS = {
    *("n", "temperature", "top_p", "frequency_penalty", "presence_penalty"),
    *("logit_bias", "max_tokens", "seed", "response_format"),
}
EXTRA_FIELDS = (
    *(name for name in SamplingOptions.model_fields if name not in OPENAI_OPTIONS),
    *("debug_config", "ignore_eos", "max_completion_tokens"),
)

_MESSAGES = '[{"role": "user", "content": "Hi!"}]'  # for an error about others
# What a chat template gets from the request or the engine.
_TEMPLATE_ARGUMENTS = (
    *("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"),
    "allow_special_tokens_in_content",
)


def is_list(value: object) -> bool:
    """Whether a value has elements in an order and is no text."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def is_token_ids(value: object) -> bool:
    """Whether a value is a list of integers, which may be those of numpy."""
    return is_list(value) and all(
        type(each) is int or isinstance(each, Integral) for each in cast(Sequence[Any], value)
    )


def count_members(prompt: Any) -> int:
    """How many a list will have. A range, or an array of one number, may be small in memory."""
    if isinstance(getattr(prompt, "shape", None), tuple):
        return math.prod(prompt.shape)
    return len(prompt) if is_list(prompt) else 0


def checked_prompt(prompt: Any) -> str | list[int] | list[str] | list[list[int]]:
    """What is one prompt or several, as texts or token ids. Raises ValueError for all else."""
    if isinstance(prompt, str):
        return prompt
    num_members = count_members(prompt)
    if num_members > MAX_PROMPT_MEMBERS:
        raise ValueError(
            f"may have {MAX_PROMPT_MEMBERS} members, got {num_members}: {shown(prompt)}"
        )
    if hasattr(prompt, "tolist"):  # an array or a tensor
        prompt = prompt.tolist()
    if is_list(prompt) and type(prompt) is not list:
        prompt = list(islice(prompt, len(prompt)))
    if is_list(prompt):
        if all(isinstance(piece, str) for piece in prompt) and prompt:
            return list(prompt)
        if all(map(is_token_ids, prompt)) and len(prompt) > 0:
            return [[int(token_id) for token_id in ids] for ids in prompt]
        if is_token_ids(prompt):
            return [int(token_id) for token_id in prompt]
    raise ValueError(
        f"must be a text, a list of token ids, or a list of prompts, got {shown(prompt)}"
    )


def prompt_list(
    prompt: str | list[int] | list[str] | list[list[int]],
) -> list[str | list[int]]:
    """The prompts as a list, which is of one if there is one."""
    one = isinstance(prompt, str) or not prompt or isinstance(prompt[0], int)
    return cast(list[str | list[int]], [prompt] if one else prompt)


# ---------------------------------------------------------------------------------------- shared


class StreamOptions(BaseModel):
    """``include_usage``: a last chunk with the usage and no choices.

    ``continuous_usage_stats``, which needs it: each chunk has the counts so far.
    """

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class _SamplingRequest(SamplingOptions):
    """What both kinds of request share."""

    model: str | None = Field(
        default=None,
        description="the name that the answer carries; that of an adapter chooses it.",
    )
    stop: str | list[str] | None = Field(
        default=None, description="texts at which an answer ends; not part of the answer."
    )
    stream: bool = Field(
        default=False, strict=True, description="answer in chunks, as they are generated."
    )
    stream_options: StreamOptions | None = Field(
        default=None, description="`include_usage`: a last chunk has the usage."
    )
    return_token_ids: bool = Field(
        default=False,
        description="the answer has the token ids of the prompt and of its text. A stream has "
        "those of the prompt once, in the first chunk (a completion: of each choice).",
    )
    add_special_tokens: bool | None = Field(
        default=None,
        description="put the tokenizer's special tokens (BOS) around a prompt that is text, unless "
        "it has them. None: around texts and chats with images, as transformers does, and not "
        "around other chats, whose template writes them.",
    )
    ignore_eos: bool | None = Field(
        default=None,
        description="the model's end-of-sequence ids do not stop; stop strings and "
        "`stop_token_ids` still do.",
    )
    user: str | None = Field(default=None, description="accepted and not used.")
    debug_config: DebugConfig | None = Field(default=None, description="see DebugConfig.")

    @field_validator("frequency_penalty", "presence_penalty")
    @classmethod
    def check_penalty_range(cls, penalty: float | None) -> float | None:
        """OpenAI's range."""
        if penalty is not None and not -2 <= penalty <= 2:
            raise ValueError(f"should be in range [-2, 2], got {penalty}")
        return penalty

    @field_validator("logit_bias")
    @classmethod
    def check_logit_bias(cls, logit_bias: dict[int, float] | None) -> dict[int, float] | None:
        """OpenAI's range; the ids are checked by the engine."""
        for token_id, bias in (logit_bias or {}).items():
            if not -100 <= bias <= 100:
                raise ValueError(
                    "Logit bias value should be in range [-100, 100], "
                    f"while the value {bias} of token {token_id} is not."
                )
        return logit_bias

    @model_validator(mode="before")
    @classmethod
    def take_null_as_absent(cls, values: Any) -> Any:
        """A field that is null has its default, as in OpenAI's API."""
        if not isinstance(values, dict):
            return values
        fields = cls.model_fields
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in fields or fields[name].is_required()
        }

    @model_validator(mode="after")
    def check_stream_options(self) -> _SamplingRequest:
        """Options of a stream need a stream."""
        if self.stream_options is not None and not self.stream:
            raise FieldError(
                "stream_options", "stream must be set to True when stream_options is present"
            )
        return self

    @model_validator(mode="after")
    def check_special_request(self) -> _SamplingRequest:
        """The answer to a special request is the usage chunk."""
        if self.debug_config is None or self.debug_config.special_request is None:
            return self
        if not self.stream:
            raise FieldError("debug_config", "DebugConfig.special_request requires stream=True")
        if self.stream_options is None or not self.stream_options.include_usage:
            raise FieldError(
                "debug_config",
                "DebugConfig.special_request requires include_usage in stream_options",
            )
        return self


# ----------------------------------------------------------------------------------- completions


class CompletionRequest(_SamplingRequest):
    """``prompt`` is text or token ids; ``logprobs`` the number of alternatives, [0, 5]."""

    prompt: str | list[int] | list[str] | list[list[int]] = Field(
        description="text or token ids, or a list of prompts."
    )
    best_of: int | None = Field(default=1, description="only 1.")
    echo: bool = Field(default=False, description="the answer begins with the prompt.")
    logprobs: int | None = Field(
        default=None,
        description="report the log probability of each token, and of this many alternatives, "
        "[0, 5].",
    )
    suffix: str | None = Field(default=None, description="only None: it is not supported.")

    @field_validator("prompt", mode="plain")
    @classmethod
    def check_prompt(cls, prompt: Any) -> Any:
        """One message for all that a prompt can be."""
        return checked_prompt(prompt)

    def prompts(self) -> list[str | list[int]]:
        """The prompts as a list, which is of one if there is one."""
        return prompt_list(self.prompt)

    @field_validator("logprobs")
    @classmethod
    def check_logprobs(cls, logprobs: int | None) -> int | None:
        """OpenAI's range."""
        if logprobs is not None and not 0 <= logprobs <= COMPLETION_MAX_TOP_LOGPROBS:
            raise ValueError(
                f'"logprobs" must be in range [0, {COMPLETION_MAX_TOP_LOGPROBS}], '
                f"got {shown(logprobs)}"
            )
        return logprobs


# ------------------------------------------------------------------------------ chat completions


class ChatCompletionRequest(_SamplingRequest, MLCChatChecks):
    """``top_logprobs`` in [0, 20] needs ``logprobs``; ``max_completion_tokens`` is max_tokens."""

    messages: list[ChatCompletionMessage] = Field(description="the conversation so far.")
    logprobs: bool = Field(default=False, description="report the log probability of each token.")
    top_logprobs: int = Field(
        default=0, description="and of this many alternatives, [0, 20]; needs `logprobs`."
    )
    max_completion_tokens: int | None = Field(default=None, description="same as `max_tokens`.")
    tools: list[ChatTool] | None = Field(
        default=None, description="functions that the model may call."
    )
    tool_choice: Literal["none", "auto", "required"] | dict[str, Any] | None = Field(
        default=None,
        description='"auto" (it may), "none", "required" (it must), or a function that it must '
        "call.",
    )
    parallel_tool_calls: bool | None = Field(default=None, description="False: at most one call.")
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None,
        description="further variables of the chat template, such as Qwen3's `enable_thinking`.",
    )
    chat_template: str | None = Field(
        default=None, description="Jinja text that renders this chat instead of the model's."
    )
    thinking_token_budget: int | None = Field(
        default=None,
        ge=0,
        description="the reasoning ends after at most this many tokens; needs the extra `grammar`.",
    )
    documents: list[dict[str, Any]] | None = Field(
        default=None, description="objects for the chat templates of retrieval models."
    )
    add_generation_prompt: bool | None = Field(
        default=None,
        description="the prompt ends with the beginning of an answer. None: unless "
        "`continue_final_message`.",
    )
    continue_final_message: bool = Field(
        default=False, description="the answer continues the last message."
    )

    allow_special_tokens_in_content: bool = Field(
        default=False,
        description="texts of the request, such as `<|im_end|>` in a message, may become control "
        "tokens. Only what the chat template writes does otherwise.",
    )

    @field_validator("messages", mode="wrap")
    @classmethod
    def validate_in_slices(cls, messages: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """Lets other threads have the GIL, which pydantic keeps, while many are validated."""
        if isinstance(messages, (str, dict)):
            raise ValueError(f"must be a list such as {_MESSAGES}, got {shown(messages)}")
        if not isinstance(messages, list) or len(messages) <= MESSAGES_PER_SLICE:
            return validate(messages)
        starts = range(0, len(messages), MESSAGES_PER_SLICE)
        try:
            slices = [validate(messages[i : i + MESSAGES_PER_SLICE]) for i in starts]
        except ValidationError:
            return validate(messages)  # as a whole, for the positions in the error
        return list(chain.from_iterable(slices))

    @field_validator("messages")
    @classmethod
    def check_messages(cls, messages: list[ChatCompletionMessage]) -> list[ChatCompletionMessage]:
        """Each field belongs to some roles only."""
        if not messages:
            raise ValueError("The message list must not be empty.")
        for i, message in enumerate(messages):
            wrong = None
            if message.tool_call_id is not None and message.role != "tool":
                wrong = "Non-tool message having `tool_call_id` is invalid"
            if message.tool_calls is not None and message.role != "assistant":
                wrong = "Non-assistant message having `tool_calls` is invalid"
            if wrong is not None:
                raise ValueError(f'{wrong}: the one at position {i} has the role "{message.role}"')
        return messages

    @field_validator("logprobs", mode="before")
    @classmethod
    def check_logprobs_is_no_count(cls, logprobs: Any) -> Any:
        """Completions have a number here."""
        if type(logprobs) is int and logprobs not in (0, 1):
            raise ValueError(
                f"must be true or false, got {shown(logprobs)}; top_logprobs is the number of "
                "alternatives"
            )
        return logprobs

    @model_validator(mode="after")
    def check_logprobs(self) -> ChatCompletionRequest:
        """OpenAI's range."""
        if not 0 <= self.top_logprobs <= CHAT_COMPLETION_MAX_TOP_LOGPROBS:
            raise FieldError(
                "top_logprobs",
                f'"top_logprobs" must be in range [0, {CHAT_COMPLETION_MAX_TOP_LOGPROBS}], '
                f"got {shown(self.top_logprobs)}",
            )
        if self.top_logprobs > 0 and not self.logprobs:
            raise FieldError("top_logprobs", '"logprobs" must be True to support "top_logprobs"')
        return self

    @model_validator(mode="after")
    def check_max_tokens(self) -> ChatCompletionRequest:
        """Two names for one limit."""
        if self.max_completion_tokens is not None:
            if self.max_tokens not in (None, self.max_completion_tokens):
                raise FieldError(
                    "max_completion_tokens",
                    f'"max_tokens" ({shown(self.max_tokens)}) and "max_completion_tokens" '
                    f"({shown(self.max_completion_tokens)}) contradict each other",
                )
            self.max_tokens = self.max_completion_tokens
        return self

    @field_validator("chat_template_kwargs")
    @classmethod
    def check_template_kwargs(cls, kwargs: dict[str, Any] | None) -> dict[str, Any] | None:
        """What the request has a field for is given there."""
        for name in _TEMPLATE_ARGUMENTS:
            if name in (kwargs or {}):
                raise ValueError(f'"{name}" is a field of the request, give it there')
        return kwargs

    @model_validator(mode="after")
    def check_continue_final_message(self) -> ChatCompletionRequest:
        """A message that is continued has content, and nothing is put behind it."""
        if self.continue_final_message:
            if self.add_generation_prompt:
                raise FieldError(
                    "continue_final_message",
                    '"continue_final_message" and "add_generation_prompt" exclude each other',
                )
            if not self.messages[-1].content:
                raise FieldError(
                    "continue_final_message",
                    '"continue_final_message" needs a last message with content',
                )
        return self

    @property
    def adds_generation_prompt(self) -> bool:
        """Whether the prompt ends with the beginning of an answer."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt

    @model_validator(mode="after")
    def check_tool_choice(self) -> ChatCompletionRequest:
        """The chosen function must be one of the tools."""
        if isinstance(self.tool_choice, dict):
            self._chosen_tools(self.tool_choice)
        elif self.tool_choice == "required" and not self.tools:
            raise FieldError(
                "tool_choice", '"tool_choice": "required" needs "tools", of which there are none'
            )
        return self

    def template_tools(self) -> list[dict[str, Any]] | None:
        """The tools that the chat template is to describe, as plain objects; None when none."""
        if not self.tools or self.tool_choice == "none":
            return None
        tools = self.tools
        if isinstance(self.tool_choice, dict):
            tools = self._chosen_tools(self.tool_choice)
        return [tool.model_dump(exclude_none=True) for tool in tools]

    def _chosen_tools(self, choice: dict[str, Any]) -> list[ChatTool]:
        if choice.get("type") != "function":
            raise FieldError("tool_choice", "Only 'function' tool choice is supported")
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str):
            raise FieldError("tool_choice", f"Invalid tool_choice value: {shown(choice)}")
        chosen = [tool for tool in self.tools or [] if tool.function.name == name]
        if not chosen:
            raise FieldError(
                "tool_choice",
                f"The tool_choice function {name[:200]} is not found in the tools list",
            )
        return chosen
