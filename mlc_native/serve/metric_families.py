"""The Prometheus text of EngineMetrics. Imported when it is asked for: prometheus-client brings an
HTTP server with it."""

from __future__ import annotations

import math
import re
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

_PREFIX = "mlc_native_"
_LABELLED = re.compile(r"(?P<name>\w+)\{(?P<label>\w+)=(?P<value>[^}]*)\}")
_COUNTER_SUFFIXES = ("_sum", "finished_requests_total")
_COUNTERS = {
    *("num_preemptions", "num_aborts", "num_errors", "num_timeouts", "num_queue_full", "num_steps"),
    "num_constrained_requests",
    *("prefix_cache_lookups", "prefix_cache_hits"),
    *("prefix_cache_tokens_saved", "prefix_cache_evicted_pages"),
    *("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens"),
    *("spec_decode_num_failures", "spec_decode_num_steps_ahead"),
}


def text(collector: Collector) -> str:
    """All that a collector has, in Prometheus' text exposition format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return generate_latest(registry).decode("utf-8")


def families(metrics: dict[str, Any]) -> list[Metric]:
    """The metrics of an engine by name. Those of a nested object begin with its key."""
    out: dict[str, Metric] = {}
    _collect_scope(metrics, "", out)
    return list(out.values())


def _collect_scope(scope: dict[str, Any], path: str, out: dict[str, Metric]) -> None:
    for key, value in scope.items():
        name = f"{path}_{key}" if path else key
        if isinstance(value, dict) and _is_histogram(value):
            _add_histogram(name, value, out)
        elif key == "finished_requests" and not path:
            for reason, count in value.items():
                _add_sample(f"{key}_total{{reason={reason}}}", path, float(count), out)
        elif isinstance(value, dict):
            _collect_scope(value, name, out)
        elif isinstance(value, (int, float)) and math.isfinite(value):
            _add_sample(key, path, float(value), out)


def _is_histogram(value: dict[str, Any]) -> bool:
    return value.keys() == {"buckets", "count", "sum"}


def _add_histogram(name: str, value: dict[str, Any], out: dict[str, Metric]) -> None:
    """Adds a histogram. ``buckets`` maps upper bounds to the number of values up to them."""
    family = HistogramMetricFamily(_PREFIX + name, _describe(name))
    family.add_metric([], list(value["buckets"].items()), value["sum"])
    out[name] = family


def _describe(name: str) -> str:
    return name.replace("_", " ")


def _add_sample(key: str, path: str, value: float, out: dict[str, Metric]) -> None:
    """Adds one number. A key "mean{batch_size=3}" becomes a label, quoted as the format asks."""
    labelled = _LABELLED.fullmatch(key)
    name = labelled["name"] if labelled else key
    name = f"{path}_{name}" if path else name
    labels = [labelled["label"]] if labelled else []
    if name not in out:
        is_counter = name in _COUNTERS or (not path and name.endswith(_COUNTER_SUFFIXES))
        kind = CounterMetricFamily if is_counter else GaugeMetricFamily
        out[name] = kind(_PREFIX + name, _describe(name), labels=labels)
    out[name].add_metric([labelled["value"]] if labelled else [], value)  # type: ignore[attr-defined]
