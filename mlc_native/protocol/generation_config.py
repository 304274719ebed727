"""GenerationConfig: how one request is to be answered."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mlc_native import _core
from mlc_native.errors import invalid_request
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.response_format import RequestResponseFormat

# Fields whose name and type are those of the C++ struct.
_PLAIN_FIELDS = (
    "n",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
    "max_tokens",
    "seed",
    "stop_strs",
    "stop_token_ids",
    "priority",
    "queue_timeout_s",
    "timeout_s",
)
_DEBUG_FIELDS = ("ignore_eos", "pinned_system_prompt", "grammar_execution_mode")


class GenerationConfig(BaseModel):
    """Settings of one request. ``None`` means: the model's default, else the engine's.

    Ranges are checked by the engine when the request is created; what is wrong is named in an
    InvalidRequest.

    Attributes:
        n: number of answers, >= 1.
        temperature: [0, inf); below 1e-5 is greedy.
        top_p: [0, 1].
        top_k: the k most likely tokens; 0 is off.
        min_p: [0, 1], relative to the most likely token.
        frequency_penalty, presence_penalty: [-2, 2].
        repetition_penalty: (0, inf).
        logprobs: report the log probability of each token.
        top_logprobs: and of this many alternatives, [0, 20].
        logit_bias: token id -> [-100, 100].
        max_tokens: per answer; -1 is unlimited, 0 an empty answer.
        seed: None draws one.
        stop_strs: text at which an answer ends; not part of the answer.
        stop_token_ids: tokens at which an answer ends; not part of the answer. An empty list leaves
            only the model's end-of-sequence ids, which ``ignore_eos`` turns off.
        priority: "high" requests are started before waiting "normal" ones, and those before "low"
            ones; each waiting request lets only a few in before it. First come, first served among
            equals.
        queue_timeout_s: seconds from the submission until work on the request must have started,
            (0, 1e9]. Else it ends with finish reason "timeout".
        timeout_s: seconds until its end. It ends with "timeout" and what it has by then.
        response_format: what the answer must look like.
    """

    model_config = ConfigDict(extra="forbid")

    n: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logprobs: bool = False
    top_logprobs: int = 0
    logit_bias: dict[int, float] | None = None
    max_tokens: int | None = -1
    seed: int | None = None
    stop_strs: list[str] | None = None
    stop_token_ids: list[int] | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    response_format: RequestResponseFormat | None = None
    debug_config: DebugConfig | None = Field(default_factory=DebugConfig)

    @property
    def is_constrained(self) -> bool:
        """Whether creating the request compiles a grammar, which may take a while."""
        return self.response_format is not None and self.response_format.type != "text"

    def apply_to(self, config: _core.GenerationConfig) -> _core.GenerationConfig:
        """Writes what is set here over ``config`` (the engine's defaults) and returns it."""
        for name in _PLAIN_FIELDS:
            value = getattr(self, name)
            if value is None:
                continue
            try:
                setattr(config, name, value)
            except TypeError:  # an integer that no C++ field holds
                raise invalid_request(name, f'"{name}" is out of range: {value}') from None
        if self.response_format is not None:
            config.response_format = self.response_format.core()
        if self.debug_config is not None:
            for name in _DEBUG_FIELDS:
                setattr(config, name, getattr(self.debug_config, name))
            config.special_request = self.debug_config.special_request or ""
        return config
