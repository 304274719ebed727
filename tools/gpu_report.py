"""Joins the results of tools/gpu_check.sh into gpu_report.json and a table.

    gpu_report.py RESULTS    reads RESULTS/{*.step,machine.log,tests/part-*.log,kernels.json,
                             micro.json,figures-*.json}; several archives may be unpacked into one
                             folder
    gpu_report.py --failed RESULTS    prints the tests that failed or never ended, one per line

Each figure is shown with its target, with what bench/cuda/model.py predicts for a machine of the
measured limits, and with the figures of the other sides. A kernel's share is the larger of
bytes / bandwidth and operations / peak, divided by its time. Absent figures are "not measured" in
the table. At the end stands what to do next (gpu_decisions.py).
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench" / "cuda"))
import gpu_decisions
import model as cuda_model

INDEPENDENT = "figures-independent"  # without dependent launches
ATTENTION = "decode_attention llama-3.1-8b rows=64 length=4096"  # of bench/cuda/kernels.cc


@dataclass(frozen=True)
class Target:
    """`key` of a side of a figure of bench/gpu.py, to be at least or (`most`) at most `value`."""

    what: str
    figure: str
    side: str
    key: str
    value: float
    most: bool = False

    def measured(self, figures: dict[str, Any]) -> float | None:
        out: float | None = figures.get(self.figure, {}).get(self.side, {}).get(self.key)
        return out

    def met(self, value: float) -> bool:
        return value <= self.value if self.most else value >= self.value

    def text(self, value: float) -> str:
        if "share" in self.key:
            return f"{100 * value:.1f} %"
        return f"{value:.2f} s" if self.key == "seconds" else f"{value:,.0f}/s"


OURS, Q4 = "mlc_native bf16", "mlc_native q4"
FLOAT8_KV = "mlc_native bf16, float8 KV"
TARGETS = (
    Target("decode 1, Qwen3-0.6B shape bf16", "decode 0.6b", OURS, "share", 0.60),
    Target("decode 1, Llama-3.2-1B shape bf16", "decode 1b", OURS, "share", 0.75),
    Target("decode 1, Llama-3.1-8B shape bf16", "decode 8b", OURS, "share", 0.88),
    Target("decode 1, Llama-3.1-8B shape q4", "decode 8b", Q4, "share", 0.65),
    Target("decode attention, 8B, 64 x 4,096", "attention 8b", OURS, "share", 0.85),
    Target("prefill 8,192, 8B shape bf16", "prefill 8b", OURS, "share", 0.60),
    Target("256 requests, output tokens", "serving 0.6b", OURS, "output_tokens_per_s", 30000),
    Target("256 requests, float8 KV", "serving 0.6b", FLOAT8_KV, "output_tokens_per_s", 30000),
    Target("device idle, batch 64", "host 0.6b", OURS, "device_idle_share", 0.03, most=True),
    Target("start to first token, 0.6B", "first token 0.6b", "mlc_native", "seconds", 4, most=True),
)


def load(file: Path) -> Any:
    """The JSON of a file, or None where a step has not written it."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def read_steps(out: Path) -> list[dict[str, Any]]:
    """Name, exit status (or why it was not run) and seconds of each step, as they ended."""
    files = sorted(out.glob("*.step"), key=lambda file: (file.stat().st_mtime_ns, file.name))
    rows = [file.read_text().rstrip("\n").split("\t") for file in files]
    return [{"name": r[0], "status": r[1], "seconds": float(r[2])} for r in rows]


def read_tests(out: Path) -> dict[str, str]:
    """How each GoogleTest ended: "ok", "skipped", "failed" or "did not end"."""
    words = {"OK": "ok", "SKIPPED": "skipped", "FAILED": "failed", "RUN": "did not end"}
    ends: dict[str, str] = {}
    for file in sorted((out / "tests").glob("part-*.log")):
        for line in file.read_text(errors="replace").splitlines():
            if match := re.match(r"\[ +(RUN|OK|SKIPPED|FAILED) +\] ([\w./]+)(?:,| \(|$)", line):
                ends[match[2]] = words[match[1]]
    return ends


def failed_tests(tests: dict[str, str]) -> list[str]:
    """Their names."""
    return [name for name, end in tests.items() if end in ("failed", "did not end")]


def count_tests(tests: dict[str, str]) -> dict[str, Any]:
    """Numbers of tests, and the names of those that failed."""
    skipped = sum(end == "skipped" for end in tests.values())
    return {"tests": len(tests), "skipped": skipped, "failed": failed_tests(tests)}


def ending(status: str) -> str:
    """In words; 124 is what timeout(1) answers."""
    words = {"0": "ok", "124": "out of time"}
    return words.get(status, f"status {status}" if status.isdigit() else status)


def read_figures(out: Path) -> dict[str, Any]:
    """All figures-*.json as one; each has limits of its own, measured by its process."""
    joined: dict[str, Any] = {"limits": {}, "figures": {}, "errors": {}}
    for file in sorted(out.glob("figures-*.json")):
        part = load(file) or {}
        joined["limits"][file.stem] = part.get("limits")
        joined["errors"] |= part.get("errors", {})
        suffix = ", one by one" if file.stem == INDEPENDENT else ""
        for name, sides in part.get("figures", {}).items():
            joined["figures"].setdefault(name + suffix, {}).update(sides)
    return joined


def read_notices(out: Path) -> list[str]:
    """What the engine has logged, each once: a slower way that it went, say."""
    lines: dict[str, None] = {}
    for file in sorted(out.glob("*.log")):
        for line in file.read_text(errors="replace").splitlines():
            if line.startswith("[mlc_native]"):
                lines[f"{file.stem}: {line}"] = None
    return list(lines)


def add_shares(kernels: list[dict[str, Any]], limits: dict[str, Any]) -> None:
    """Adds "share" to each kernel; the best machine of all processes is the limit."""
    machine = best_machine(limits)
    if machine is None:
        return
    for kernel in kernels:
        least = max(
            kernel["bytes"] / machine["bytes_per_s"],
            kernel["operations"] / machine["operations_per_s"],
        )
        kernel["share"] = least / kernel["seconds"]


def best_machine(limits: dict[str, Any]) -> dict[str, float] | None:
    """The best limits of all processes; None where none was measured."""
    machines = [machine for machine in limits.values() if machine]
    keys = ("bytes_per_s", "operations_per_s")
    return {key: max(machine[key] for machine in machines) for key in keys} if machines else None


def add_predictions(kernels: list[dict[str, Any]], machine: dict[str, float] | None) -> None:
    """Adds "predicted_seconds" to each kernel of which the model knows something."""
    predictor = cuda_model.Predictor(machine=cuda_model.machine_of(machine))
    for kernel in kernels:
        predicted = cuda_model.predict_kernel(kernel["name"], predictor)
        if predicted is not None:
            kernel["predicted_seconds"] = predicted


def add_attention(figures: dict[str, Any], kernels: list[dict[str, Any]]) -> None:
    """Compares attention in the kernels' benchmark with torch's in bench/gpu.py."""
    for kernel in kernels:
        if kernel["name"] == ATTENTION:
            figures.setdefault("attention 8b", {})[OURS] = kernel


def make_report(out: Path) -> dict[str, Any]:
    """Everything that steps have left in a folder."""
    measured, kernels = read_figures(out), load(out / "kernels.json") or []
    add_shares(kernels, measured["limits"])
    add_attention(measured["figures"], kernels)
    machine = best_machine(measured["limits"])
    add_predictions(kernels, machine)
    tests = read_tests(out)
    targets = []
    for target in TARGETS:
        value = target.measured(measured["figures"])
        met = None if value is None else target.met(value)
        predicted = cuda_model.predict_figure(target.figure, target.side, target.key, machine)
        targets.append({**vars(target), "measured": value, "met": met, "predicted": predicted})
    micro = load(out / "micro.json") or []
    machine_log = out / "machine.log"
    return {
        "machine": machine_log.read_text().splitlines() if machine_log.exists() else [],
        "steps": read_steps(out),
        "tests": count_tests(tests) if tests else None,
        "targets": targets,
        **measured,
        "kernels": kernels,
        "micro": micro,
        "notices": read_notices(out),
        "decisions": gpu_decisions.decide(micro + kernels, measured["figures"], machine),
    }


def other_sides(target: Target, figures: dict[str, Any]) -> str:
    """The figures of the other sides."""
    cells = []
    for side, values in figures.get(target.figure, {}).items():
        if side.startswith("mlc_native"):
            continue
        value = values.get(target.key)
        text = target.text(value) if value is not None else values.get("error", "")
        cells.append(f"{side}: {text}")
    return "; ".join(cells)


def table(report: dict[str, Any]) -> str:
    """Steps, targets and kernels as Markdown."""
    lines = ["```", *report["machine"], "```", "", "| step | | s |", "|---|---|--:|"]
    for step in report["steps"]:
        lines.append(f"| {step['name']} | {ending(step['status'])} | {step['seconds']:.1f} |")
    if tests := report["tests"]:
        failed = tests["failed"]
        lines.append(f"\n{tests['tests']} tests, {tests['skipped']} skipped, {len(failed)} failed")
        lines += [f"* {name}" for name in failed]
    lines += ["", "| | target | predicted | measured | others |", "|---|--:|--:|--:|---|"]
    for target, row in zip(TARGETS, report["targets"], strict=True):
        value = target.measured(report["figures"])
        measured = "not measured" if value is None else target.text(value)
        predicted = "" if row["predicted"] is None else target.text(row["predicted"])
        sign = "&le;" if target.most else "&ge;"
        others = other_sides(target, report["figures"])
        lines.append(
            f"| {target.what} | {sign} {target.text(target.value)} | {predicted} | {measured} "
            f"| {others} |"
        )
    lines += ["", "| kernel | predicted, us | us | share |", "|---|--:|--:|--:|"]
    for kernel in report["kernels"]:
        share = f"{100 * kernel['share']:.1f} %" if "share" in kernel else ""
        predicted = kernel.get("predicted_seconds")
        cell = "" if predicted is None else f"{predicted * 1e6:.1f}"
        lines.append(f"| {kernel['name']} | {cell} | {kernel['seconds'] * 1e6:.1f} | {share} |")
    lines += [f"\n{row}: {error}" for row, error in report["errors"].items()]
    lines += ["", *(f"* {notice}" for notice in report["notices"])]
    lines += ["", "| question | answer | next |", "|---|---|---|"]
    for each in report["decisions"]:
        lines.append(f"| {each['question']} | {each['answer']} | {each['next']} |")
    return "\n".join(lines)


def main() -> None:
    """Writes gpu_report.json and gpu_report.md, prints the latter."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, help="folder with the results, and for the report")
    parser.add_argument(
        "--failed",
        action="store_true",
        help="only print the tests that failed or never ended, one per line",
    )
    args = parser.parse_args()
    out = args.results
    if args.failed:
        print(*failed_tests(read_tests(out)), sep="\n")
        return
    report = make_report(out)
    (out / "gpu_report.json").write_text(json.dumps(report, indent=1) + "\n")
    (out / "gpu_report.md").write_text(table(report) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
