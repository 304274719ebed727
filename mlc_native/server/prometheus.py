"""``/metrics``: each engine's own metrics, and the same under the names of vLLM's dashboards.

Every sample has the label ``model_name``, the name that the operator gave; no label comes from a
request. What vLLM counts per request and the engine does not is observed here, from the usage of
each request that this server has answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from mlc_native.errors import MLCNativeError, ModelNotLoaded
from mlc_native.serve.metrics import EngineMetrics
from mlc_native.server.fields import integer

if TYPE_CHECKING:
    from mlc_native.serve.async_engine import AsyncMLCEngine
    from mlc_native.server.state import ServerState

WAIT_S = 5.0  # for the metrics of further models once there are those of one
_LABELS = ("model_name", "engine")
_ENGINE = "0"
_LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920),
    7680,
)
_PER_TOKEN_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40),
    80,
)
_TOKEN_BUCKETS = tuple(m * 10**e for e in range(6) for m in (1, 2, 5))
_N_BUCKETS = (1, 2, 5, 10, 20)
_HISTOGRAMS: dict[str, tuple[str, tuple[float, ...]]] = {
    "e2e_request_latency_seconds": ("time from a request to its end", _LATENCY_BUCKETS),
    "request_queue_time_seconds": ("time until work on a request began", _LATENCY_BUCKETS),
    "request_inference_time_seconds": ("time of work on a request", _LATENCY_BUCKETS),
    "request_prefill_time_seconds": (
        "time from the first work to the first token",
        _LATENCY_BUCKETS,
    ),
    "request_decode_time_seconds": ("time from the first token to the end", _LATENCY_BUCKETS),
    "request_time_per_output_token_seconds": ("mean time between tokens", _PER_TOKEN_BUCKETS),
    "request_prompt_tokens": ("tokens of a prompt", _TOKEN_BUCKETS),
    "request_generation_tokens": ("tokens of all answers of a request", _TOKEN_BUCKETS),
    "request_max_num_generation_tokens": ("tokens of an answer, the mean of n", _TOKEN_BUCKETS),
    "request_params_max_tokens": ("max_tokens of a request", _TOKEN_BUCKETS),
    "request_num_preemptions": ("times that a sequence of a request gave way", _N_BUCKETS),
    "request_params_n": ("n of a request", _N_BUCKETS),
}
_COUNTERS = {
    "prompt_tokens": "prompt_tokens_sum",
    "prompt_tokens_cached": "cached_tokens_sum",
    "generation_tokens": "completion_tokens_sum",
    "num_preemptions": "num_preemptions",
    "prefix_cache_queries": "prompt_tokens_sum",
    "prefix_cache_hits": "cached_tokens_sum",
}
_DRAFT_COUNTERS = {
    "spec_decode_num_drafts": "num_drafts",
    "spec_decode_num_draft_tokens": "num_draft_tokens",
    "spec_decode_num_accepted_tokens": "num_accepted_tokens",
    "spec_decode_draft_failures": "num_failures",
}
_FINISHED_REASONS = ("stop", "length", "abort", "error", "timeout")
_ENGINE_HISTOGRAMS = {
    "time_to_first_token_seconds": "ttft_s",
    "inter_token_latency_seconds": "inter_token_latency_s",
    "iteration_tokens_total": "step_tokens",
}


class RequestMetrics:
    """The histograms of one model's requests."""

    def __init__(self) -> None:
        self._histograms = {
            name: Histogram(f"vllm:{name}", text, buckets=buckets, registry=None)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }

    def observe(self, fields: dict[str, Any], usage: Any) -> None:
        """Adds a request that has ended, by its fields and its usage: of several prompts each."""
        if usage is None:
            return
        for each in usage.of_prompts or [usage]:
            self._observe(fields, each)

    def _observe(self, fields: dict[str, Any], usage: Any) -> None:
        extra = usage.extra or {}
        if "finished_requests" in extra:  # the answer to a query of metrics
            return
        n = integer(fields, "n") or 1
        self._add("request_prompt_tokens", usage.prompt_tokens)
        self._add("request_generation_tokens", usage.completion_tokens)
        self._add("request_max_num_generation_tokens", usage.completion_tokens / n)
        self._add("request_params_n", n)
        max_tokens = integer(fields, "max_completion_tokens", "max_tokens")
        if max_tokens is not None:
            self._add("request_params_max_tokens", max_tokens)
        if "num_preemptions" in extra:
            self._add("request_num_preemptions", extra["num_preemptions"])
        self._add_times(extra)

    def collect(self) -> Iterator[Metric]:
        """The histograms as prometheus-client has them."""
        for histogram in self._histograms.values():
            yield from histogram.collect()

    def _add(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _add_times(self, extra: dict[str, Any]) -> None:
        try:
            e2e_s, per_token_s = extra["end_to_end_latency_s"], extra["inter_token_latency_s"]
            # 0: it ended in the queue, or before its first token.
            queue_s, ttft_s = extra["queue_time_s"] or e2e_s, extra["ttft_s"] or e2e_s
        except KeyError:  # of an engine that measures nothing
            return
        self._add("e2e_request_latency_seconds", e2e_s)
        self._add("request_queue_time_seconds", queue_s)
        self._add("request_inference_time_seconds", e2e_s - queue_s)
        self._add("request_prefill_time_seconds", max(0.0, ttft_s - queue_s))
        self._add("request_decode_time_seconds", max(0.0, e2e_s - ttft_s))
        self._add("request_time_per_output_token_seconds", per_token_s)


def _with_labels(metrics: Iterable[Metric], labels: dict[str, str]) -> Iterator[Metric]:
    for metric in metrics:
        labelled = Metric(metric.name, metric.documentation, metric.type)
        for sample in metric.samples:
            if not sample.name.endswith("_created"):
                labelled.add_sample(sample.name, {**labels, **sample.labels}, sample.value)
        yield labelled


def _vllm_metrics(model_name: str, engine: EngineMetrics, num_rejected: int) -> Iterator[Metric]:
    labels = [model_name, _ENGINE]

    def family(kind: Any, name: str, text: str, *more: str) -> Any:
        return kind(f"vllm:{name}", text, labels=[*_LABELS, *more])

    for name, value in (
        ("num_requests_running", engine["num_running_requests"]),
        ("num_requests_waiting", engine["num_waiting_requests"]),
        ("kv_cache_usage_perc", engine["kv_pages_used"] / max(1, engine["kv_pages_total"])),
    ):
        gauge = family(GaugeMetricFamily, name, name.replace("_", " "))
        gauge.add_metric(labels, value)
        yield gauge
    waiting = family(GaugeMetricFamily, "num_requests_waiting_by_reason", "why they wait", "reason")
    waiting.add_metric([*labels, "capacity"], engine["num_waiting_requests"])
    yield waiting
    cache = family(
        GaugeMetricFamily, "cache_config_info", "the KV cache", "num_gpu_blocks", "block_size"
    )
    cache.add_metric([*labels, str(engine["kv_pages_total"]), "16"], 1)
    yield cache
    for name, own in _COUNTERS.items():
        counter = family(CounterMetricFamily, name, name.replace("_", " "))
        counter.add_metric(labels, engine[own])
        yield counter
    drafts = engine.metrics.get("spec_decode", {})
    for name, own in _DRAFT_COUNTERS.items():
        counter = family(CounterMetricFamily, name, name.replace("_", " "))
        counter.add_metric(labels, drafts.get(own, 0))
        yield counter
    by_position = family(
        CounterMetricFamily,
        "spec_decode_num_accepted_tokens_per_pos",
        "accepted draft tokens by their position in the draft",
        "position",
    )
    for position, count in enumerate(drafts.get("accept_count", [])[1:]):
        by_position.add_metric([*labels, str(position)], count)
    yield by_position
    success = family(
        CounterMetricFamily, "request_success", "requests that ended", "finished_reason"
    )
    for reason in _FINISHED_REASONS:
        success.add_metric([*labels, reason], engine["finished_requests"].get(reason, 0))
    yield success
    rejected = family(CounterMetricFamily, "admission_rejections", "requests refused", "reason")
    rejected.add_metric([*labels, "queue_full"], engine["num_queue_full"])
    rejected.add_metric([*labels, "concurrency"], num_rejected)
    yield rejected
    for name, own in _ENGINE_HISTOGRAMS.items():
        histogram = family(HistogramMetricFamily, name, name.replace("_", " "))
        histogram.add_metric(labels, list(engine[own]["buckets"].items()), engine[own]["sum"])
        yield histogram


class _Collected:
    """Metrics of several models; those of the same name become one family."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def add(self, metrics: Iterable[Metric]) -> None:
        for metric in metrics:
            known = self._families.setdefault(metric.name, metric)
            if known is not metric:
                known.samples += metric.samples

    def collect(self) -> Iterable[Metric]:
        return self._families.values()


async def metrics_text(state: ServerState, accept: str) -> tuple[bytes, str]:
    """All metrics and their content type, in the format that a scraper accepts."""
    snapshots = await _snapshots(state)
    return await state.on_thread(lambda: _encode(state, snapshots, accept))


async def _snapshots(state: ServerState) -> dict[str, EngineMetrics]:
    """The metrics of each model that is loaded, without those whose engine has ended or is in a
    long step while others answer. Raises MLCNativeError if all engines have ended.
    """
    snapshots: dict[str, EngineMetrics] = {}
    errors: list[MLCNativeError] = []

    async def ask(name: str, engine: AsyncMLCEngine) -> None:
        try:
            snapshots[name] = await state.health.metrics(engine)
        except ModelNotLoaded:  # it was unloaded meanwhile
            return
        except MLCNativeError as error:
            errors.append(error)

    waiting = {
        asyncio.ensure_future(ask(model.name, model.engine))
        for model in state.models.all
        if model.engine is not None and model.max_model_len is not None
    }
    try:
        if waiting:
            _, waiting = await asyncio.wait(waiting, timeout=WAIT_S)
        while waiting and not snapshots:
            _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
    if errors and not snapshots:
        raise errors[0]
    names = [model.name for model in state.models.all]
    return {name: snapshots[name] for name in names if name in snapshots}


def _encode(
    state: ServerState, snapshots: dict[str, EngineMetrics], accept: str
) -> tuple[bytes, str]:
    collected = _Collected()
    for name, engine in snapshots.items():
        collected.add(_with_labels(engine.collect(), {"model_name": name}))
        if state.config.metrics_compat == "vllm":
            collected.add(_vllm_metrics(name, engine, state.running.num_rejected[name]))
            labels = {"model_name": name, "engine": _ENGINE}
            collected.add(_with_labels(state.metrics[name].collect(), labels))
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collected)
    encode, content_type = choose_encoder(accept)
    if isinstance(encode, partial) and encode.keywords.get("escaping") == "underscores":
        # No name needs it, but prometheus-client 0.26 takes the colon out of names of samples.
        encode = partial(encode, escaping="allow-utf-8")
    return encode(registry), content_type
