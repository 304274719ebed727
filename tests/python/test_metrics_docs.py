"""docs/tuning.md lists all metrics of an engine and all times of a request, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from mlc_native import EngineConfig, MLCEngine

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "tuning.md"
NAME = re.compile(r"`(\w+)`")


KINDS = {"counters": "counter", "present values": "gauge", "histograms": "histogram"}


def section() -> str:
    text = DOCUMENT.read_text(encoding="utf-8")
    return text.partition("## Metrics and traces\n")[2].partition("\n## ")[0]


def names_by_table() -> dict[str, list[str]]:
    """The names in the first column of each table, by its title."""
    tables: dict[str, list[str]] = {}
    title = ""
    for line in section().splitlines():
        if line.startswith("| "):
            first = line.split("|")[1].strip()
            title = first if "`" not in first else title
            tables.setdefault(title, []).extend(NAME.findall(first))
    return tables


def test_every_metric_is_documented(make_model: Callable[..., str], fake_lib: str) -> None:
    engine_config = EngineConfig(speculative_mode="ngram", spec_draft_length=3)
    model = make_model(answer=20 * "abcdef")
    with MLCEngine(model, model_lib=fake_lib, engine_config=engine_config) as engine:
        answer = engine.completions.create(prompt="x", max_tokens=60, temperature=0)
        metrics = engine.metrics()
    tables = names_by_table()
    assert sorted(name for names in tables.values() for name in names) == sorted(metrics)
    families = dict(re.findall(r"# TYPE mlc_native_(\w+) (\w+)", metrics.prometheus_text()))
    for title, names in tables.items():
        kind = KINDS[title]
        suffix = "_total" if kind == "counter" else ""
        for name in names:
            if kind != "gauge" or not isinstance(metrics[name], dict):
                assert families[name + suffix] == kind
    assert answer.usage is not None
    extra = answer.usage.extra or {}
    of_guesses = {"num_drafts", "draft_tokens", "accepted_draft_tokens", "acceptance_histogram"}
    assert extra.keys() > of_guesses
    of_requests = section().partition("`usage.extra` of a request has")[2].partition("\n\n")[0]
    assert set(NAME.findall(of_requests)) == extra.keys() - of_guesses
