"""The benchmarks of bench/ that are programs for people: they run and write what they say."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import cold_start
import offline
import quality
import quality_llama
import serving
from common import DEMO
from fidelity import Reference, compare, held_out_texts
from load_generator import Lengths, Record, Workload, draw_arrivals

VOCAB_SIZE = 2048  # of the demo model
SERVING = [
    *("--model", "demo", "--threads", "1", "--max-sequences", "4", "--seed", "3"),
    *("--prompt-tokens", "4:40", "--output-tokens", "1:12"),
]


def test_every_program_parses_its_arguments() -> None:
    """So that --help describes it, and neither runs it nor ends in a traceback."""
    root = Path(__file__).resolve().parents[2]
    sources = {
        path.name: path.read_text(encoding="utf-8")
        for folder in ("bench", "bench/cuda", "tools")
        for path in (root / folder).glob("*.py")
    }
    programs = {name: text for name, text in sources.items() if '"__main__"' in text}
    assert len(programs) > 20
    assert [name for name, text in programs.items() if "parse_args(" not in text] == []


def run_serving(folder: Path, *arguments: str) -> dict[str, Any]:
    serving.main([*SERVING, *arguments, "--json", str(folder / "out.json")])
    out: dict[str, Any] = json.loads((folder / "out.json").read_text())
    return out


def test_serving_counts_every_token_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run_serving(tmp_path, "--rates", "40", "inf", "--requests", "20", "--duration", "1")
    assert out["settings"]["seed"] == "3"
    workload = Workload(Lengths(4, 40), Lengths(1, 12), num_requests=20, duration_s=1.0)
    for i, (rate, run) in enumerate(zip((40.0, math.inf), out["runs"], strict=True)):
        sent = draw_arrivals(rate, workload, VOCAB_SIZE, (3, i + 1))
        assert run["rate"] == ("inf" if math.isinf(rate) else rate)
        assert (run["requests"], run["failed"]) == (len(sent), 0)
        assert run["output_tokens"] == sum(arrival.max_tokens for arrival in sent)
        assert run["output_tokens_per_s"] == pytest.approx(run["output_tokens"] / run["seconds"])
        for name in ("ttft_s", "inter_token_s", "end_to_end_s", "queue_s", "generator_late_s"):
            d = run[name]
            if name == "inter_token_s" and not d:
                continue  # a busy machine: all tokens of every request came at once
            assert 0 <= d["p50"] <= d["p90"] <= d["p99"] <= d["max"], name
        assert run["queue_s"]["mean"] < run["ttft_s"]["mean"] <= run["end_to_end_s"]["mean"]
    table = capsys.readouterr().out
    assert "time to first token" in table
    assert "demo, auto, KV cache auto, 1 threads" in table


def test_arrivals_are_poisson_and_repeat() -> None:
    workload = Workload(Lengths(1, 3), Lengths(5, 5), num_requests=None, duration_s=400.0)
    arrivals = draw_arrivals(5.0, workload, VOCAB_SIZE, (0,))
    assert arrivals == draw_arrivals(5.0, workload, VOCAB_SIZE, (0,))
    assert arrivals != draw_arrivals(5.0, workload, VOCAB_SIZE, (1,))
    gaps = np.diff([0.0, *(arrival.due_s for arrival in arrivals)])
    assert arrivals[-1].due_s <= 400
    assert gaps.mean() == pytest.approx(0.2, rel=0.1)
    assert gaps.std() == pytest.approx(0.2, rel=0.1)  # of an exponential: its mean
    assert {len(arrival.prompt) for arrival in arrivals} == {1, 2, 3}
    assert {arrival.max_tokens for arrival in arrivals} == {5}


def test_tokens_that_come_together_share_the_time_since_the_last_output() -> None:
    record = Record(0.0, output_s=[1.0, 1.5, 3.5], output_tokens=[3, 1, 2])
    assert record.inter_token_s() == [0.5, 1.0, 1.0]


@pytest.mark.parametrize("text", ["", "0", "5:4", "a", "1:b", "1:2:3"])
def test_wrong_lengths_are_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        serving.main(["--prompt-tokens", text])
    assert "--prompt-tokens" in capsys.readouterr().err


def test_serving_plots(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "out.png"
    run_serving(tmp_path, "--rates", "50", "100", "--requests", "4", "--plot", str(plot))
    data = plot.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) < 100_000


def test_plot_without_matplotlib_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit, match=r"mlc_native\[bench\]"):
        run_serving(tmp_path, "--requests", "1", "--plot", str(tmp_path / "out.png"))
    assert not (tmp_path / "out.json").exists()


def test_offline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    offline.main(
        [
            *("--model", "demo", "--threads", "1", "--quantization", "q8", "--json", str(path)),
            *("--batches", "1", "2", "--new-tokens", "4", "--repeats", "2", "--against", "float32"),
        ]
    )
    rows = json.loads(path.read_text())["tokens_per_s"]
    assert list(rows) == ["decode batch 1", "decode batch 2", "prefill 512"]
    for row in rows.values():
        assert list(row) == ["mlc_native", "transformers float32"]
        assert all(len(rounds) == 2 for rounds in row.values())
    assert " x" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler")
def test_cold_start(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    cold_start.main(["--repeats", "1"])
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["C", "C", "Python", "Python"]
    assert [row[2] for row in rows] == ["ms", "MiB", "ms", "MiB"]
    assert all(float(row[1]) > 1 for row in rows)
    monkeypatch.setattr(cold_start, "IN_PYTHON", "raise SystemExit(3)")
    with pytest.raises(SystemExit, match="exit status 3"):
        cold_start.main(["--repeats", "1"])


def test_quality(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.json"
    quality.main(
        [
            *("--documents", "3", "--random", "tiny-llama", "--tokens", "40", "--threads", "1"),
            *("--precisions", "float32", "q4", "--json", str(path)),
        ]
    )
    out = json.loads(path.read_text())
    assert out["demo"]["float32"]["error"] < 1e-4
    assert out["demo"]["float32"]["equal"] == out["demo"]["q4"]["answers"] == 23
    assert out["random"]["tiny-llama"]["q4"]["error"] > 0.05
    assert out["random"]["tiny-llama"]["q4"]["perplexity"] is None
    assert "| float32 | 0.00% |" in capsys.readouterr().out


def test_weights_rounded_for_llama_cpps_rows_are_those_of_the_engine() -> None:
    texts = held_out_texts(num_documents=3, num_long=0)
    expected = [Reference(DEMO).logits(text) for text in texts]
    errors, bits = {}, {}
    for name, formats in {"q8": ("q8", "q8"), "q4": ("q8", "q4"), "4": ("q4", "q4")}.items():
        model = quality_llama.RoundedReference(DEMO)
        bits[name] = model.round(first_and_head=formats[0], others=formats[1])
        errors[name] = compare((model.logits(text) for text in texts), expected, texts).error
    assert bits["4"] == 4.5 < bits["q4"] < bits["q8"] == 8.25
    assert 0.001 < errors["q8"] < 0.02 < errors["q4"] < 0.06 < errors["4"] < 0.15
