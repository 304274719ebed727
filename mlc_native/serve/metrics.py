"""EngineMetrics: the engine's counters, and their Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class EngineMetrics(Mapping[str, Any]):
    """A snapshot of an engine's metrics, a mapping: ``metrics["decode_tokens_sum"]`` reads one."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics

    def __getitem__(self, key: str) -> Any:
        return self.metrics[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.metrics)

    def __len__(self) -> int:
        return len(self.metrics)

    __eq__ = object.__eq__  # a registry of prometheus-client keeps it in a dict
    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"EngineMetrics({self.metrics!r})"

    def prometheus_text(self) -> str:
        """All metrics in Prometheus' text exposition format. Times are in seconds."""
        from mlc_native.serve import metric_families

        return metric_families.text(self)

    def collect(self) -> Iterator[Metric]:
        """The collector interface of prometheus-client."""
        from mlc_native.serve import metric_families

        return iter(metric_families.families(self.metrics))
