"""GroupResponder: the response to one call of ``completions.create`` with several prompts."""

from __future__ import annotations

from collections.abc import Sequence

from mlc_native._stream_bridge import CallbackStreamOutput
from mlc_native.protocol.openai_api_protocol import (
    CompletionResponse,
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
)
from mlc_native.serve.responses import CompletionResponder, completion_usage
from mlc_native.serve.streams import AddedText

Outputs = list[CallbackStreamOutput]


def total_usage(usages: Sequence[CompletionUsage]) -> CompletionUsage:
    """The sums of the token counts. Times and rates of several requests have no sum."""
    total = CompletionUsage()
    total.of_prompts.extend(usages)
    cached_tokens = 0
    for usage in usages:
        total.prompt_tokens += usage.prompt_tokens
        total.completion_tokens += usage.completion_tokens
        total.total_tokens += usage.total_tokens
        cached_tokens += usage.prompt_tokens_details.cached_tokens
        _add_predictions(total, usage)
    total.prompt_tokens_details = PromptTokensDetails(cached_tokens=cached_tokens)
    return total


def _add_predictions(total: CompletionUsage, usage: CompletionUsage) -> None:
    details = usage.completion_tokens_details
    if details is None or details.accepted_prediction_tokens is None:
        return
    sums = total.completion_tokens_details or CompletionTokensDetails()
    for name in ("accepted_prediction_tokens", "rejected_prediction_tokens"):
        setattr(sums, name, (getattr(sums, name) or 0) + (getattr(details, name) or 0))
    total.completion_tokens_details = sums


class GroupResponder:
    """Joins the answers to several prompts, each of which has a responder of its own.

    Args:
        responders: by the id of the prompt's request, in the order of the prompts.
    """

    def __init__(self, responders: dict[str, CompletionResponder]) -> None:
        self._responders = responders
        self._usages: list[CompletionUsage] = []

    def opening(self) -> list[CompletionResponse]:
        """Chunks before the first output: the echoed prompts."""
        return [chunk for each in self._responders.values() for chunk in each.opening()]

    def pieces(self, outputs: Outputs) -> list[CompletionResponse | AddedText]:
        """See Responder: for outputs of one prompt. The last chunk has the usage of all."""
        responder = self._responders[outputs[0].request_id]
        usage_json = outputs[0].request_final_usage_json_str
        if usage_json is None:
            return responder.pieces(outputs)
        self._usages.append(completion_usage(usage_json))
        is_last = len(self._usages) == len(self._responders)
        return [*responder.usage_chunks(total_usage(self._usages))] if is_last else []

    def chunk(self, added: AddedText) -> CompletionResponse:
        """See Responder."""
        return next(iter(self._responders.values())).chunk(added)  # they differ in the index only

    def response(self, outputs: list[Outputs]) -> CompletionResponse:
        """The response, from all batches of outputs of all prompts."""
        batches: dict[str, list[Outputs]] = {request_id: [] for request_id in self._responders}
        for batch in outputs:
            batches[batch[0].request_id].append(batch)
        responses = [each.response(batches[id_]) for id_, each in self._responders.items()]
        first = responses[0]
        first.choices = [choice for response in responses for choice in response.choices]
        first.usage = total_usage([r.usage for r in responses if r.usage is not None])
        return first
