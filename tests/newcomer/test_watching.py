"""Newcomer tasks: logs, metrics, traces."""

from __future__ import annotations

import json
import logging

import pytest

from mlc_native import MLCEngine


def test_logging(caplog: pytest.LogCaptureFixture) -> None:
    """The package logs what it loads under its name."""
    with caplog.at_level(logging.INFO, logger="mlc_native"), MLCEngine("demo"):
        pass
    assert any(record.name.startswith("mlc_native") for record in caplog.records)
    assert "demo" in caplog.text


def test_quiet(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing on the terminal."""
    with MLCEngine("demo", verbose=False) as engine:
        engine.generate(["a"], max_tokens=1)
    assert capfd.readouterr() == ("", "")


def test_metrics(engine: MLCEngine) -> None:
    """Counters, and the text that Prometheus scrapes."""
    before = engine.metrics()
    engine.generate(["a"], max_tokens=3, ignore_eos=True)
    after = engine.metrics()
    assert after["decode_tokens_sum"] > before["decode_tokens_sum"]
    assert "decode_tokens_sum" in after
    assert dict(after).keys() == set(before)
    assert after.get("no_such_metric", 0) == 0
    assert "# TYPE" in after.prometheus_text()


def test_trace() -> None:
    """A trace that Perfetto opens."""
    with MLCEngine("demo", enable_tracing=True) as engine:
        engine.generate(["a"], max_tokens=2)
        events = json.loads(engine.state.trace_recorder.dump_json())
    assert {"name", "ph", "ts"} <= set(events[0])
