"""``engine.score`` and ``engine.rerank``: what is computed of two sides of texts, and what follows.

A reranker reads both texts of a pair at once; other models embed each side, and the cosines are the
scores. A plan does not wait: the engines compute its calls, for threads and for event loops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import hypot
from operator import mul
from typing import Any

from mlc_native.errors import InvalidRequest, invalid_request, shown
from mlc_native.protocol.embeddings import (
    SERVICE_OPTIONS,
    EmbeddingRequest,
    EmbeddingResponse,
    EmbeddingUsage,
)
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.scoring import (
    ClassificationRequest,
    ClassificationResponse,
    ComparisonRequest,
    RerankDocument,
    RerankResponse,
    RerankResult,
    Score,
    ScoreResponse,
)
from mlc_native.protocol.validation import unreadable, validated
from mlc_native.serve.embedding_prompts import EmbeddingPrompts
from mlc_native.serve.embeddings import PooledResponse
from mlc_native.serve.model_setup import ModelSetup
from mlc_native.serve.openai_interface import request_fields
from mlc_native.serve.request_processing import Prompt, bounded_token_ids, random_request_id

# Names of prompts that a model folder may have for each side.
_SIDE_PROMPTS = (("query",), ("document", "passage"))


@dataclass(frozen=True)
class PooledCall:
    """A call that an engine answers.

    Attributes:
        kind: of its request.
        name: what its field "input" is called by the caller.
    """

    kind: type[EmbeddingRequest] | type[ClassificationRequest]
    fields: dict[str, Any]
    name: str

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Gives errors about its input the caller's name of it."""
        try:
            yield
        except InvalidRequest as error:
            if error.field != "input":
                raise
            text = str(error).replace('"input"', f'"{self.name}"')
            raise invalid_request(self.name, text, error.code) from None


class Pairs:
    """Two sides of texts: one and several, or as many as there are on the other side.

    Attributes:
        names: the caller's names of both sides.
        sides: the texts of both.
    """

    def __init__(self, names: tuple[str, str], left: object, right: object) -> None:
        """Raises InvalidRequest for sides that are no texts, or do not go together."""
        self.names = names
        self.sides = checked_texts(names[0], left), checked_texts(names[1], right)
        lefts, rights = map(len, self.sides)
        if lefts not in (1, rights):
            raise invalid_request(
                names[0],
                f'"{names[0]}" must have one text or as many as "{names[1]}", which has {rights}, '
                f"got {lefts}",
            )

    def __len__(self) -> int:
        return len(self.sides[1])

    def pairs(self) -> list[tuple[str, str]]:
        """The texts of each pair."""
        left, right = self.sides
        return list(zip(left if len(left) > 1 else left * len(right), right, strict=True))


class Comparison:
    """What an engine computes for pairs.

    Attributes:
        model: the name that the response carries.
        calls: to be computed, in any order.
    """

    def __init__(
        self,
        setup: ModelSetup,
        pairs: Pairs,
        arguments: Mapping[str, Any],
    ) -> None:
        """
        Args:
            arguments: fields of a ComparisonRequest.

        Raises:
            InvalidRequest: an argument is wrong, a pair is too long, or the model has classes of
                which none is a score.
            TypeError: an argument does not exist.
        """
        request = validated(ComparisonRequest, request_fields(ComparisonRequest, arguments))
        self.model = request.model or setup.name
        self.calls: list[PooledCall]
        if setup.num_classes == 0:
            self.calls = _calls_of_sides(pairs, request, setup.embedding_prompts)
        else:
            self.calls = [_call_of_pairs(pairs, request, setup)]

    def scores(self, responses: Sequence[PooledResponse]) -> list[float]:
        """The score of each pair, of the responses to all calls in their order."""
        if isinstance(responses[0], ClassificationResponse):
            return [each.probs[0] for each in responses[0].data]
        left, right = responses
        return _cosines(left, right)  # type: ignore[arg-type]

    def score_response(self, responses: Sequence[PooledResponse]) -> ScoreResponse:
        """What ``score`` answers."""
        scores = self.scores(responses)
        data = [Score(index=i, score=score) for i, score in enumerate(scores)]
        return ScoreResponse(
            id=random_request_id("score"),
            created=int(time.time()),
            model=self.model,
            data=data,
            usage=_usage(responses),
        )


class Ranking:
    """A query and the documents that are put into an order."""

    def __init__(
        self, query: object, documents: object, top_n: object, *, return_documents: object
    ) -> None:
        """Raises InvalidRequest for an argument that is wrong."""
        if not isinstance(query, str):
            raise invalid_request("query", f'"query" must be one text, got {shown(query)}')
        if top_n is not None and (
            not isinstance(top_n, int) or isinstance(top_n, bool) or top_n < 0
        ):
            raise invalid_request(
                "top_n", f'"top_n" must be an integer of at least 0 (0 is all), got {shown(top_n)}'
            )
        if not isinstance(return_documents, bool):
            raise invalid_request(
                "return_documents",
                f'"return_documents" must be true or false, got {shown(return_documents)}',
            )
        self.pairs = Pairs(("query", "documents"), query, documents)
        self._top_n = top_n
        self._has_documents = return_documents

    def response(self, plan: Comparison, responses: Sequence[PooledResponse]) -> RerankResponse:
        """The response, of those to the calls of the plan."""
        scores = plan.scores(responses)
        order = sorted(range(len(scores)), key=lambda i: -scores[i])[: self._top_n or None]
        documents = self.pairs.sides[1]
        results = [
            RerankResult(
                index=i,
                relevance_score=scores[i],
                document=RerankDocument(text=documents[i]) if self._has_documents else None,
            )
            for i in order
        ]
        return RerankResponse(
            id=random_request_id("rerank"),
            model=plan.model,
            results=results,
            usage=_usage(responses),
        )


def checked_texts(name: str, value: object) -> list[str]:
    """A text or a list of texts. Raises InvalidRequest."""
    try:
        given = [value] if isinstance(value, str) else value
        texts = list(given) if isinstance(given, (list, tuple)) else []
        are_right = bool(texts) and all(isinstance(text, str) and text for text in texts)
    except Exception as error:  # what a method of a caller's object raises
        raise unreadable(name, error) from error
    if not are_right:
        raise invalid_request(
            name,
            f'"{name}" must be a text or a list of texts, none of them empty, got {shown(value)}',
        )
    for i, text in enumerate(texts):
        try:
            str.encode(text)
        except UnicodeEncodeError as error:
            raise invalid_request(name, f'text {i} of "{name}" is no Unicode: {error}') from None
    return texts


def _service(request: ComparisonRequest) -> dict[str, Any]:
    names = [*SERVICE_OPTIONS, "model"]
    return {name: getattr(request, name) for name in names}


def _calls_of_sides(
    pairs: Pairs, request: ComparisonRequest, prompts: EmbeddingPrompts
) -> list[PooledCall]:
    if request.instruction is not None:
        raise invalid_request(
            "instruction",
            "this model is no reranker; it compares embeddings, which have no instruction",
        )
    calls: list[PooledCall] = []
    for side, names in enumerate(_SIDE_PROMPTS):
        prompt = next((each for each in names if each in prompts.names), None)
        fields = {"input": pairs.sides[side], "prompt_name": prompt, **_service(request)}
        calls.append(PooledCall(EmbeddingRequest, fields, pairs.names[side]))
    return calls


def _call_of_pairs(pairs: Pairs, request: ComparisonRequest, setup: ModelSetup) -> PooledCall:
    if setup.num_classes > 1:
        raise invalid_request(
            "model",
            f"this model has {setup.num_classes} classes, and only one with a single class says "
            "how well two texts go together; classify tells its classes",
        )
    config = GenerationConfig(truncate_prompt_tokens=request.truncate_prompt_tokens)
    length = setup.max_input_sequence_length, setup.input_length_reason

    def encode(prompt: Prompt) -> list[int]:
        return bounded_token_ids(prompt, setup.tokenizer, config, *length, add_special_tokens=False)

    inputs = []
    second_texts = []
    for i, (query, document) in enumerate(pairs.pairs()):
        try:
            prompt = setup.pair_prompts.prompt(query, document, request.instruction)
            inputs.append(encode(prompt))
            first = setup.pair_prompts.first_text(query, document)
            second_texts.append(0 if first is None else len(encode(first)))
        except InvalidRequest as error:
            if error.field not in ("prompt", "messages"):
                raise
            text = f"pair {i}: {error}"
            raise invalid_request(pairs.names[1], text, error.code) from None
    fields = {"input": inputs, "use_activation": request.use_activation, **_service(request)}
    if any(second_texts):
        fields["second_texts"] = second_texts
    return PooledCall(ClassificationRequest, fields, pairs.names[1])


def _usage(responses: Sequence[PooledResponse]) -> EmbeddingUsage:
    num_tokens = sum(response.usage.total_tokens for response in responses)
    return EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens)


def _cosines(left: EmbeddingResponse, right: EmbeddingResponse) -> list[float]:
    """Of the pairs; a side of one text is compared with each text of the other."""
    lefts = [each.embedding for each in left.data]
    rights = [each.embedding for each in right.data]
    if len(lefts) == 1:
        lefts *= len(rights)
    return [_cosine(a, b) for a, b in zip(lefts, rights, strict=True)]  # type: ignore[arg-type]


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    lengths = hypot(*a) * hypot(*b)
    return sum(map(mul, a, b)) / lengths if lengths else 0.0
