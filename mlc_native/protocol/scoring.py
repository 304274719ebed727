"""What classifiers and rerankers are asked and answer: vLLM's classify and score, and the rerank of
Jina, Cohere and vLLM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypedDict

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from mlc_native.protocol.embeddings import SERVICE_OPTIONS, EmbeddingUsage
from mlc_native.protocol.generation_config import SamplingOptions
from mlc_native.protocol.openai_api_protocol import checked_prompt, prompt_list
from mlc_native.protocol.validation import read_lazy

# Of what is no list; more inputs than a call has.
MAX_SECOND_TEXTS = 1 << 20


class ServiceFields(BaseModel):
    """What a request says of its service, and not of its texts."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(
        default=None,
        description="the name that the response carries; that of an adapter chooses it.",
    )
    user: str | None = Field(default=None, description="has no effect.")
    truncate_prompt_tokens: int | None = None
    priority: Literal["high", "normal", "low"] = "normal"
    queue_timeout_s: float | None = None
    timeout_s: float | None = None
    cache_salt: str | None = Field(default=None, min_length=1)
    adapter: str | None = None


for _name in SERVICE_OPTIONS:
    _field = ServiceFields.model_fields[_name]
    _field.description = SamplingOptions.model_fields[_name].description


class ClassificationRequest(ServiceFields):
    """``input`` is text or token ids, or a list of texts or of lists of token ids."""

    input: str | list[int] | list[str] | list[list[int]] = Field(
        description="text or token ids, or a list of them."
    )
    use_activation: bool = Field(
        default=True,
        description="make probabilities of the logits, as the model folder says: their softmax, or "
        "the sigmoid of each; False: the logits.",
    )
    add_special_tokens: bool = Field(
        default=True, description="put what the tokenizer puts around a text around each one."
    )
    second_texts: list[int] | None = Field(
        default=None,
        description="of each input that is token ids, where a second text begins, for models that "
        "tell two texts apart, such as BERT (0: there is one text); others ignore it.",
    )

    @model_validator(mode="before")
    @classmethod
    def read_lazy_lists(cls, values: Any) -> Any:
        """Reads iterators and the like up to a limit, as they may have no end."""
        is_read = isinstance(values, dict)
        return read_lazy(values, {"second_texts": MAX_SECOND_TEXTS}, {}) if is_read else values

    @field_validator("input", mode="plain")
    @classmethod
    def check_input(cls, value: Any) -> Any:
        """One message for all that an input can be."""
        return checked_prompt(value)

    def inputs(self) -> list[str | list[int]]:
        """The inputs as a list, which is of one if there is one."""
        return prompt_list(self.input)


class ComparisonRequest(ServiceFields):
    """What requests that compare texts have besides them."""

    instruction: str | None = Field(
        default=None,
        description="what makes a document relevant, for a reranker whose prompt says it; None: "
        "what its prompt says by default.",
    )
    use_activation: bool = Field(
        default=True,
        description="make a number between 0 and 1 of the logit of a reranker; False: the logit.",
    )


class ServiceArguments(TypedDict, total=False):
    """The arguments of a call that concern its service."""

    model: str | None
    user: str | None
    truncate_prompt_tokens: int | None
    priority: Literal["high", "normal", "low"]
    queue_timeout_s: float | None
    timeout_s: float | None
    cache_salt: str | None
    adapter: str | None
    extra_body: Mapping[str, Any] | None


class ClassificationArguments(ServiceArguments, total=False):
    """The arguments of ``classify`` except its inputs."""

    use_activation: bool
    add_special_tokens: bool
    second_texts: list[int] | None
    request_id: str | None


class ComparisonArguments(ServiceArguments, total=False):
    """The arguments of ``score`` and ``rerank`` except their texts."""

    instruction: str | None
    use_activation: bool


class Classification(BaseModel):
    """The classes of one input.

    Attributes:
        label: the name of the likeliest class.
        probs: a number for each class: its probability, or its logit without ``use_activation``.
    """

    index: int
    label: str
    probs: list[float]
    num_classes: int

    @property
    def outputs(self) -> Self:
        """The same, for programs that were written for vLLM."""
        return self


class ClassificationResponse(BaseModel):
    """The classes of all inputs, in their order."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Classification]
    usage: EmbeddingUsage = Field(default_factory=EmbeddingUsage)


class Score(BaseModel):
    """How well two texts go together: what a reranker says, or the cosine of their embeddings."""

    index: int
    object: str = "score"
    score: float

    @property
    def outputs(self) -> Self:
        """The same, for programs that were written for vLLM."""
        return self


class ScoreResponse(BaseModel):
    """The scores of all pairs, in their order."""

    id: str
    object: str = "list"
    created: int
    model: str
    data: list[Score]
    usage: EmbeddingUsage = Field(default_factory=EmbeddingUsage)


class RerankDocument(BaseModel):
    """The text of a document."""

    text: str


class RerankResult(BaseModel):
    """A document, by its place among those of the request, and its score."""

    index: int
    relevance_score: float
    document: RerankDocument | None = None


class RerankResponse(BaseModel):
    """The documents in the order of their scores, the best one first."""

    id: str
    model: str
    usage: EmbeddingUsage = Field(default_factory=EmbeddingUsage)
    results: list[RerankResult]
