"""Joins what tools/gpu_check.sh has measured into gpu_report.json and a table.

    gpu_report.py OUT                    reads OUT/{steps.tsv,machine.log,tests.json,...}
    gpu_report.py --measure-peak FILE    bf16 peak of GPU 0 by a large matrix product of torch

Each figure stands beside its limit of the same run: the larger of bytes / bandwidth of a large
copy and operations / measured peak. What was not measured is absent.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any


def measure_peak(file: Path) -> None:
    """Writes {"operations_per_s": ...}: the median of 20 products of 8192 x 8192 random bf16."""
    import torch

    n = 8192
    a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
    seconds = []
    for _ in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.mm(a, b)
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) * 1e-3)
    file.write_text(json.dumps({"operations_per_s": 2 * n**3 / statistics.median(seconds[3:])}))


def load(file: Path) -> Any:
    """The JSON of a file, or None where a step has not written it."""
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):
        return None


def steps(out: Path) -> list[dict[str, Any]]:
    """Name, exit status and seconds of each step, in order."""
    rows = [line.split("\t") for line in (out / "steps.tsv").read_text().splitlines()]
    return [{"name": r[0], "status": int(r[1]), "seconds": float(r[2])} for r in rows]


def with_limits(kernels: list[dict[str, Any]], peak: float | None) -> list[dict[str, Any]]:
    """Adds "share" of the limit (0 to 1) to each kernel where the limit is known."""
    copy = next((k for k in kernels if k["name"] == "copy"), None)
    bandwidth = copy["bytes"] / copy["seconds"] if copy else None
    for kernel in kernels:
        limits = []
        if bandwidth:
            limits.append(kernel["bytes"] / bandwidth)
        if peak:
            limits.append(kernel["operations"] / peak)
        if len(limits) == 2:
            kernel["share"] = max(limits) / kernel["seconds"]
    return kernels


def print_table(report: dict[str, Any]) -> None:
    """Steps and kernels, one line each."""
    print("\n".join(report["machine"]))
    for step in report["steps"]:
        status = "ok" if step["status"] == 0 else f"status {step['status']}"
        print(f"{step['name']:<12} {status:<10} {step['seconds']:6.1f} s")
    if report["tests"]:
        print("tests: {tests}, failed: {failures}".format(**report["tests"]))
    for kernel in report["kernels"]:
        share = f"{100 * kernel['share']:5.1f} %" if "share" in kernel else ""
        print(f"{kernel['name']:<48} {kernel['seconds'] * 1e6:10.1f} us  {share}")


def main() -> int:
    if sys.argv[1:2] == ["--measure-peak"] and len(sys.argv) == 3:
        measure_peak(Path(sys.argv[2]))
        return 0
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(sys.argv[1])
    peak = load(out / "peak.json")
    tests = load(out / "tests.json")
    report = {
        "machine": (out / "machine.log").read_text().splitlines(),
        "steps": steps(out),
        "tests": {key: tests[key] for key in ("tests", "failures", "errors")} if tests else None,
        "bf16_peak": peak["operations_per_s"] if peak else None,
        "kernels": with_limits(
            load(out / "kernels.json") or [], peak["operations_per_s"] if peak else None
        ),
    }
    (out / "gpu_report.json").write_text(json.dumps(report, indent=1) + "\n")
    print_table(report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
