"""EngineMetrics: the engine's counters, and their Prometheus text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


class EngineMetrics:
    """A snapshot of an engine's metrics; ``metrics["decode_tokens_sum"]`` reads one."""

    def __init__(self, metrics: dict[str, Any]) -> None:
        self.metrics = metrics

    def __getitem__(self, key: str) -> Any:
        return self.metrics[key]

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
