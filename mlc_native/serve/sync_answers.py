"""What ``SyncMLCEngine.generate`` takes and collects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mlc_native.errors import invalid_request
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.openai_api_protocol import PromptLogProbs
from mlc_native.serve import data
from mlc_native.serve.request_processing import Prompt

Prompts = str | list[str] | list[int] | list[list[int]] | list[list[data.Data]]
Config = GenerationConfig | Mapping[str, Any]
Texts = list[list[str]]
Logprobs = list[list[list[str]] | None]


class Generated(tuple[Texts, Logprobs]):
    """``(texts, logprobs)``, the result of ``SyncMLCEngine.generate``.

    Attributes:
        prompt_logprobs: for each prompt the log-probabilities of its tokens and of their
            alternatives, by token id (None for the first token); None if none were requested.
    """

    prompt_logprobs: list[PromptLogProbs | None]

    def __new__(
        cls, texts: Texts, logprobs: Logprobs, prompt_logprobs: list[PromptLogProbs | None]
    ) -> Generated:
        """The tuple with its attribute."""
        result = super().__new__(cls, (texts, logprobs))
        result.prompt_logprobs = prompt_logprobs
        return result


class Collector(Protocol):
    """Takes the outputs of one request until it has finished."""

    finished: bool

    def add(self, output: data.RequestStreamOutput) -> None:
        """Takes an output."""


class Answers:
    """What has come of one request of ``generate``."""

    def __init__(self, config: GenerationConfig) -> None:
        self.texts = [""] * config.n
        self.logprobs: list[list[str]] | None = None
        if config.logprobs:
            self.logprobs = [[] for _ in self.texts]
        self.prompt_logprobs: PromptLogProbs | None = None
        self.error_message = ""
        self.finished = False

    def add(self, output: data.RequestStreamOutput) -> None:
        _, group = output.unpack()
        if output.is_final:
            self.finished = True
            return
        self.prompt_logprobs = self.prompt_logprobs or group[0].prompt_logprobs
        for i, delta in enumerate(group):
            self.texts[i] += delta.extra_prefix_string + delta.delta_text
            if self.logprobs is not None:
                self.logprobs[i] += delta.delta_logprob_json_strs or []
            self.error_message = self.error_message or delta.error_message


def as_prompt_list(prompts: Prompts) -> Sequence[Prompt]:
    if isinstance(prompts, str) or not isinstance(prompts, list):
        return [prompts]
    if prompts and all(isinstance(piece, int) for piece in prompts):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def as_config_list(
    config: Config | list[Config] | None, num_prompts: int
) -> list[GenerationConfig]:
    if isinstance(config, list):
        configs = [GenerationConfig.of(each) for each in config]
    else:
        configs = [GenerationConfig.of(config)] * num_prompts
    if len(configs) != num_prompts:
        raise invalid_request(
            "generation_config",
            f"there are {len(configs)} generation configs for {num_prompts} prompts",
        )
    return configs
