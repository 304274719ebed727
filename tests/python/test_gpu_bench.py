"""The benchmark of a GPU, its limits and its report, as far as they run without one."""

from __future__ import annotations

import fnmatch
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import gpu
import gpu_decisions
import gpu_report
import torch
from device_trace import (
    EDGE,
    MIN_GAP_S,
    DeviceTrace,
    device_spans,
    idle_share,
    short_name,
)
from machine import ROOT
from model_limit import Decoder, Machine, Step
from model_shapes import SHAPES

QWEN = SHAPES["qwen3-0.6b"]


def test_every_row_runs_tiny(tmp_path: Path) -> None:
    path = tmp_path / "figures-all.json"
    rows = [row for row in gpu.ROWS if row != "first-token"]
    assert gpu.main([*rows, "--tiny", "--threads", "1", "--json", str(path)]) == 0
    out = json.loads(path.read_text())
    assert out["errors"] == {}
    figures = out["figures"]
    for label in ("decode 0.6b", "decode 1b", "decode 8b", "prefill 8b"):
        sides = [
            "mlc_native bf16",
            *(["mlc_native q4"] if "8b" in label else []),
            "transformers bfloat16",
        ]
        assert list(figures[label]) == sides
    serving = figures["serving 0.6b"]
    assert serving["mlc_native bf16"]["failed"] == 0
    assert serving["mlc_native bf16"]["requests"] == gpu.TINY.requests
    assert serving["transformers generate"]["requests"] == gpu.TINY.requests
    host = figures["host 0.6b"]["mlc_native bf16"]
    assert 0 < host["host_s"] <= host["step_s"]
    assert host["phases"]["step"]["count"] >= gpu.TINY.new_tokens


@pytest.mark.slow
def test_first_token_starts_processes(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    assert gpu.main(["first-token", "--tiny", "--json", str(path)]) == 0
    sides = json.loads(path.read_text())["figures"]["first token 0.6b"]
    assert list(sides) == ["mlc_native", "transformers"]
    assert all(side["seconds"] > 0 for side in sides.values())


def test_a_row_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_run: gpu.Run) -> gpu.Parts:
        yield {"serving 0.6b": {"first side": {"seconds": 1.0}}}
        raise RuntimeError("no")

    monkeypatch.setitem(gpu.ROWS, "serving", fail)
    path = tmp_path / "figures.json"
    assert gpu.main(["serving", "attention", "--tiny", "--json", str(path)]) == 1
    out = json.loads(path.read_text())
    assert out["errors"] == {"serving": "RuntimeError: no"}
    assert list(out["figures"]) == ["serving 0.6b", "attention 8b"]  # what a row has, stays


def test_a_side_is_written_before_the_next_one_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.json"
    seen = []

    def two_sides(_run: gpu.Run) -> gpu.Parts:
        yield {"row": {"ours": {"seconds": 1.0}}}
        seen.append(json.loads(path.read_text())["figures"])
        yield {"row": {"others": {"seconds": 2.0}}}

    monkeypatch.setitem(gpu.ROWS, "serving", two_sides)
    assert gpu.main(["serving", "--tiny", "--json", str(path)]) == 0
    assert seen == [{"row": {"ours": {"seconds": 1.0}}}]
    figures = json.loads(path.read_text())["figures"]
    assert figures == {"row": {"ours": {"seconds": 1.0}, "others": {"seconds": 2.0}}}


@pytest.mark.parametrize(
    ("sides", "names"),
    [("ours", ["mlc_native bf16"]), ("others", ["transformers bfloat16"])],
)
def test_sides_are_measured_alone(tmp_path: Path, sides: str, names: list[str]) -> None:
    path = tmp_path / "figures.json"
    args = ["decode-0.6b", "--tiny", "--threads", "1", "--sides", sides, "--json", str(path)]
    assert gpu.main(args) == 0
    assert list(json.loads(path.read_text())["figures"]["decode 0.6b"]) == names


def test_what_others_cannot_do_is_an_error_in_their_place() -> None:
    def refuse() -> dict[str, float]:
        raise RuntimeError("not here")

    assert gpu.attempt(refuse) == {"error": "RuntimeError: not here"}
    assert gpu.attempt(lambda: {"seconds": 1.0}) == {"seconds": 1.0}


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gpu.main(["decode-7b"])
    assert "decode-7b" in capsys.readouterr().err


def test_limits_count_the_shape() -> None:
    decoder = Decoder.of(QWEN)
    matrices = 28 * (1024 * (2048 + 1024 + 1024 + 2048) + 3 * 1024 * 3072) + 151936 * 1024
    assert decoder.weight_bytes == 2 * matrices
    assert decoder.kv_bytes_per_token == 2 * 2 * 28 * 1024
    one = Step(1, 1, 99)
    assert decoder.step_bytes(one) == 2 * matrices + 101 * decoder.kv_bytes_per_token
    assert decoder.step_operations(one) == 2 * matrices + 4 * 2048 * 28 * 100
    two = decoder.step_operations(Step(1, 2, 99)) - decoder.step_operations(one)
    assert two == 2 * (matrices - 151936 * 1024) + 4 * 2048 * 28 * 101


def test_a_stored_embedding_of_its_own_is_not_read() -> None:
    config = QWEN | {"tie_word_embeddings": False}
    assert Decoder.of(config, 10e9).weight_bytes == 10e9 - 2 * 151936 * 1024
    assert Decoder.of(QWEN, 10e9).weight_bytes == 10e9


def test_requests_share_the_reads_of_weights() -> None:
    decoder = Decoder.of(QWEN)
    slow_memory = Machine(bytes_per_s=1.0, operations_per_s=1e30)
    one = decoder.requests_seconds(slow_memory, [(10, 4)])
    assert one > 4 * decoder.weight_bytes
    two = decoder.requests_seconds(slow_memory, [(10, 4), (10, 4)])
    assert two - one == pytest.approx(one - 4 * decoder.weight_bytes)


def test_idle_share_counts_long_gaps_between_the_edges() -> None:
    assert idle_share([(0, 4), (3, 7), (7 + MIN_GAP_S / 2, 10)]) == 0
    inside = 10 * (1 - 2 * EDGE)
    assert idle_share([(0, 4), (6, 10)]) == pytest.approx(2 / inside)
    assert idle_share([(0, 0.1), (2, 10)]) == pytest.approx(1 / inside)  # half of it at the edge
    assert idle_share([(0, 10), (1, 2)]) == 0


def test_spans_are_those_of_the_device_asked_for() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(4).add_(1)
    spans, names = device_spans(profiler, torch.autograd.DeviceType.CPU)
    assert min(spans)[0] == 0
    assert all(begin <= end < 60 for begin, end in spans)
    assert len(names) == len(spans)
    assert any("ones" in name for name in names)
    assert device_spans(profiler, torch.autograd.DeviceType.CUDA) == ([], [])


def test_overlapping_kernels_share_the_time() -> None:
    trace = DeviceTrace()
    trace.busy_s = [(4.0, 6.0), (0.0, 3.0), (1.0, 5.0)]  # the last one waits for the second
    trace.names = [
        "void mlc_native::kernels::(anonymous namespace)::A<(ns::E)1>(int)",
        "b",
        "a::C()",
    ]
    assert [(k["name"], k["runs"], k["seconds"]) for k in trace.kernels()] == [
        ("b", 1, 3.0),
        ("C", 1, 2.0),
        ("A<(E)1>", 1, 1.0),
    ]
    assert trace.span_s() == 6.0
    assert short_name("Memcpy DtoH (Device -> Pinned)") == "Memcpy DtoH "


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    (tmp_path / "machine.log").write_text("a GPU\n")
    for step in ("build\t0\t12.5", "tests\t124\t60", "memcheck\tnot run: no GPU\t0"):
        (tmp_path / f"{step.partition(chr(9))[0]}.step").write_text(step + "\n")
    kernel = {"name": gpu_report.ATTENTION, "seconds": 2.0, "bytes": 90.0, "operations": 10.0}
    (tmp_path / "kernels.json").write_text(json.dumps([kernel]))
    figures = {
        "limits": {"bytes_per_s": 50.0, "operations_per_s": 100.0},
        "figures": {
            "decode 8b": {
                "mlc_native bf16": {"share": 0.9},
                "transformers bfloat16": {"share": 0.25},
            },
            "first token 0.6b": {"mlc_native": {"seconds": 5.0}},
            "host 0.6b": {"mlc_native bf16": {"device_idle_share": None}},
        },
        "errors": {"serving": "RuntimeError: no"},
    }
    (tmp_path / "figures-1.json").write_text(json.dumps(figures))
    return tmp_path


def test_report_compares_with_targets(measured: Path) -> None:
    report = gpu_report.make_report(measured)
    met = {each["what"]: each["met"] for each in report["targets"]}
    assert met["decode 1, Llama-3.1-8B shape bf16"] is True
    assert met["decode attention, 8B, 64 x 4,096"] is True  # 90 / 50 / 2
    assert met["start to first token, 0.6B"] is False
    assert met["device idle, batch 64"] is None
    assert met["256 requests, output tokens"] is None
    assert report["tests"] is None


def test_sides_of_several_processes_meet_in_one_figure(measured: Path) -> None:
    other = {"figures": {"decode 8b": {"torch": {"share": 0.5}}}, "limits": None, "errors": {}}
    (measured / "figures-others.json").write_text(json.dumps(other))
    (measured / "figures-independent.json").write_text(json.dumps(other))
    figures = gpu_report.make_report(measured)["figures"]
    assert list(figures["decode 8b"]) == ["mlc_native bf16", "transformers bfloat16", "torch"]
    assert list(figures["decode 8b, one by one"]) == ["torch"]


def test_how_each_test_ended(measured: Path) -> None:
    (measured / "tests").mkdir()
    (measured / "tests/part-0.log").write_text(
        "[==========] Running 3 tests from 1 test suite.\n"
        "[ RUN      ] A.Passes\n[       OK ] A.Passes (1 ms)\n"
        "[ RUN      ] A.Skips\n[  SKIPPED ] A.Skips (0 ms)\n"
        "[ RUN      ] All/A.Fails/0\nx.cc:1: Failure\n"
        "[  FAILED  ] All/A.Fails/0, where GetParam() = 1 (2 ms)\n"
        "[  FAILED  ] 1 test, listed below:\n[  FAILED  ] All/A.Fails/0, where GetParam() = 1\n"
    )
    (measured / "tests/part-1.log").write_text("[ RUN      ] B.Crashes\nterminate called\n")
    report = gpu_report.make_report(measured)
    assert report["tests"] == {"tests": 4, "skipped": 1, "failed": ["All/A.Fails/0", "B.Crashes"]}
    text = gpu_report.table(report)
    assert "4 tests, 1 skipped, 2 failed\n* All/A.Fails/0\n* B.Crashes\n" in text


def micro_of(equal: bool | None, cublaslt_s: float, barrier_s: float) -> list[dict[str, Any]]:
    return [
        {"name": "edge", "order": "one by one", "blocks": 132, "seconds": 1.2e-6},
        {"name": "edge", "order": "dependent", "blocks": 132, "seconds": 1.15e-6},
        {"name": "grid barrier", "blocks": 132, "seconds": barrier_s},
        {"name": "read", "bytes": 8, "loads": 4, "seconds": 8 / 3.9e12},
        {"name": "read", "bytes": 8, "loads": 1, "seconds": 8 / 2e12},
        {"name": "cached read", "bytes": 7e6, "seconds": 1e-6 * cublaslt_s},
        {"name": "cublaslt bits", "shape": "a", "rows": [{"m": 48, "equal": equal}]},
        {"name": "product", "shape": "a", "m": 8, "gemv_s": 1.0, "cublaslt_s": 2.0},
        {"name": "product", "shape": "a", "m": 16, "gemv_s": 1.0, "cublaslt_s": cublaslt_s},
        {"name": "product", "shape": "a", "m": 64, "gemv_s": 2, "gemm_s": 1, "cublaslt_s": 0.9},
        {"name": "prefill_attention a", "seconds": 1e-3},
        {"name": "prefill_attention b", "seconds": 1e-3},
        {"name": "warpgroup_prefill_attention a", "seconds": 0.5e-3},
        {"name": "warpgroup_prefill_attention b", "seconds": 1e-3 * cublaslt_s},
    ]


def test_each_outcome_has_something_to_do() -> None:
    limits = {"bytes_per_s": 4.3e12, "operations_per_s": 790e12}
    figures = {
        "decode 0.6b": {"mlc_native bf16": {"tokens_per_s": 110.0}},
        "decode 0.6b, one by one": {"mlc_native bf16": {"tokens_per_s": 100.0}},
    }
    texts = []
    for micro in (micro_of(True, 0.5, 2e-6), micro_of(False, 3.0, 0.1e-6), micro_of(None, 1, 1)):
        decisions = gpu_decisions.decide(micro, figures, limits)
        assert [each["question"] for each in decisions] == list(gpu_decisions.QUESTIONS)
        assert all(each["answer"] != "not measured" and each["next"] for each in decisions)
        texts.append({each["question"]: f"{each['answer']}: {each['next']}" for each in decisions})
    bits = "whether cuBLASLt's bits depend on the number of rows"
    assert texts[0][bits].startswith("equal for all m from 33 on: rows keep their bits")
    assert texts[1][bits].startswith("they differ, a: m = [48]: batches above 32 rows need")
    assert texts[2][bits].startswith("it refused m = [48]")
    cached = "what bandwidth the level-2 cache has"
    assert "does not bound WarpgroupGemm" in texts[0][cached]
    assert texts[2][cached].startswith(
        "7.00 TB/s; a stage of WarpgroupGemm's copies takes at least"
    )
    assert "the cache bounds WarpgroupGemm: let the two blocks" in texts[2][cached]
    barrier = "what a barrier of all blocks costs"
    assert "no persistent kernel" in texts[0][barrier]
    assert "persistent decode kernel pays" in texts[1][barrier]
    product = "from how many rows on cuBLASLt is faster than Gemv"
    assert "for every shape from m = 16 on" in texts[0][product]
    assert "for every shape from m = 64 on" in texts[1][product]
    own = texts[0]["from how many rows on Gemm is faster than Gemv"]
    assert "from m = 64 on; above 32 rows it takes at most 1.11 x" in own
    assert "take it for all decode batches" in own
    assert "gain nothing" in texts[0]["what it costs with dependent launches"]
    warpgroups = "what warpgroups gain in attention of prompts"
    assert "make it the default" in texts[0][warpgroups]
    assert texts[1][warpgroups].startswith("a: 0.50 of the time; b: 3.00 of the time: take it for")
    assert "+10.0 %" in texts[0]["what dependent launches gain in decode of 0.6B"]


def test_what_the_engine_logged_is_in_the_report(measured: Path) -> None:
    (measured / "serving.log").write_text("1\n" + 2 * "[mlc_native] without CUDA graphs\n")
    notices = gpu_report.make_report(measured)["notices"]
    assert notices == ["serving: [mlc_native] without CUDA graphs"]
    assert f"\n* {notices[0]}\n" in gpu_report.table(gpu_report.make_report(measured))


def test_nothing_measured_decides_nothing() -> None:
    assert {each["answer"] for each in gpu_decisions.decide([], {}, None)} == {"not measured"}


def test_report_says_what_was_not_measured(measured: Path) -> None:
    text = gpu_report.table(gpu_report.make_report(measured))
    assert "| tests | out of time | 60.0 |" in text
    assert "| memcheck | not run: no GPU | 0.0 |" in text
    assert "| decode 1, Llama-3.1-8B shape bf16 | &ge; 88.0 % |" in text
    assert "| 90.0 % | transformers bfloat16: 25.0 % |" in text
    assert "/s | not measured |  |" in text
    assert "serving: RuntimeError: no" in text


def test_the_tests_under_compute_sanitizer_exist() -> None:
    script = (ROOT / "tools" / "gpu_stages.sh").read_text()
    patterns = ":".join(re.findall(r"^small\+?='(.*)'$", script, re.MULTILINE)).split(":")
    names = {
        ".".join(test)
        for file in (ROOT / "tests" / "cpp" / "cuda").glob("*_test.cc")
        for test in re.findall(r"^TEST(?:_F)?\((\w+), (\w+)\)", file.read_text(), re.MULTILINE)
    }
    unknown = [p for p in patterns if p and not fnmatch.filter(names, p)]
    assert unknown == []


def test_every_target_is_a_figure_of_the_benchmark() -> None:
    shapes = {"attention 8b", "serving 0.6b", "host 0.6b", "first token 0.6b", "prefill 8b"}
    shapes |= {f"decode {shape}" for shape in gpu.FULL.shapes}
    assert {target.figure for target in gpu_report.TARGETS} == shapes
