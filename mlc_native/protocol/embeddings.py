"""OpenAI's embeddings: the request, which takes what a service and a model need besides, and the
response.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from pydantic import BaseModel, ConfigDict, Field, field_validator

from mlc_native.protocol.generation_config import SamplingOptions
from mlc_native.protocol.openai_api_protocol import checked_prompt, prompt_list

# Options of SamplingOptions that concern what is not generated, too.
SERVICE_OPTIONS = (
    *("truncate_prompt_tokens", "priority", "queue_timeout_s", "timeout_s", "cache_salt"),
    "adapter",
)


class EmbeddingRequest(BaseModel):
    """``input`` is text or token ids, or a list of texts or of lists of token ids."""

    model_config = ConfigDict(extra="forbid")

    input: str | list[int] | list[str] | list[list[int]] = Field(
        description="text or token ids, or a list of them."
    )
    model: str | None = Field(
        default=None,
        description="the name that the response carries; that of an adapter chooses it.",
    )
    encoding_format: Literal["float", "base64"] = Field(
        default="float",
        description='"float": lists of numbers. "base64": texts of little-endian float32.',
    )
    dimensions: int | None = Field(
        default=None,
        description="only so many of the first numbers, as models that were trained for it allow; "
        "None: all.",
    )
    user: str | None = Field(default=None, description="has no effect.")
    pooling: Literal["last", "mean", "cls"] | None = Field(
        default=None,
        description='"last": the hidden state of the last token; "mean": the mean of all tokens\'; '
        '"cls": the first token\'s, of models that attend in both directions. None: as the model '
        "folder says, else the first one of encoders such as BERT and the last one of others.",
    )
    normalize: bool | None = Field(
        default=None,
        description="scale an embedding to length 1. None: as the model folder says, else True.",
    )
    prompt_name: str | None = Field(
        default=None,
        description="put this prompt of the model folder in front of each text, such as "
        '"query"; None: its default prompt, "": none.',
    )
    add_special_tokens: bool = Field(
        default=True, description="put what the tokenizer puts around a text around each one."
    )
    truncate_prompt_tokens: int | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    cache_salt: str | None = Field(default=None, min_length=1)
    adapter: str | None = None

    @field_validator("input", mode="plain")
    @classmethod
    def check_input(cls, value: Any) -> Any:
        """One message for all that an input can be."""
        return checked_prompt(value)

    def inputs(self) -> list[str | list[int]]:
        """The inputs as a list, which is of one if there is one."""
        return prompt_list(self.input)


for _name in SERVICE_OPTIONS:
    _field = EmbeddingRequest.model_fields[_name]
    _field.description = SamplingOptions.model_fields[_name].description


class EmbeddingArguments(TypedDict, total=False):
    """The arguments of ``embeddings.create`` except ``input``."""

    model: str | None
    encoding_format: Literal["float", "base64"]
    dimensions: int | None
    user: str | None
    pooling: Literal["last", "mean", "cls"] | None
    normalize: bool | None
    prompt_name: str | None
    add_special_tokens: bool
    truncate_prompt_tokens: int | None
    priority: Literal["high", "normal", "low"]
    queue_timeout_s: float | None
    timeout_s: float | None
    cache_salt: str | None
    adapter: str | None
    request_id: str | None
    extra_body: Mapping[str, Any] | None


class Embedding(BaseModel):
    """The embedding of one input."""

    object: str = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    """Tokens of all inputs."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class EmbeddingResponse(BaseModel):
    """The embeddings of all inputs, in their order."""

    object: str = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage = Field(default_factory=EmbeddingUsage)
