"""This engine beside OpenVINO GenAI, llama.cpp and transformers, in turns in one run.

    python bench/peers_setup.py --folder build/peers       # once: installs, builds and converts
    python bench/peers.py --folder build/peers [--bits 16,8,4] [--isa avx2] [--json F] [--plot F]

In each of `--repeats` rounds all sides measure a row one after the other, every other round in
reverse; nothing else runs meanwhile. A cell is the median with the smallest and the largest value,
and `ours` over the side as the median of the rounds' ratios. `prefill` is prompt tokens per second
of one step, `decode` the tokens per second of later steps, of so many sequences with a context of
so many tokens. Models and prompts are the same; what each side stores:

    bits   mlc_native   OpenVINO GenAI            llama.cpp         transformers
    16     bfloat16     fp16, computed in bf16    BF16              bfloat16
    8      q8           int8, one scale per row   Q8_0              -
    4      q4           int4, groups of 128       Q4_0              -
    Q4_K_M the same GGUF file -                   Q4_K_M            -   (or another format)

K and V have 16 bits everywhere. llama.cpp is measured by its own llama-batched-bench, whose figures
do not contain sampling and text. Before its decode rows it computes one prompt and copies K and V
to all sequences: that takes less time and leaves the measured steps as they are. Where a model
does not allow the copy (positions of Qwen3.5), each sequence computes the prompt.
--isa avx2 restricts all sides to AVX2, avx2_vnni to that with VNNI (llama.cpp to AVX2).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from machine import ROOT, provenance
from peers_setup import OPENVINO_FORMATS, Peers

ISA_SETTINGS = {
    "best": {},
    "avx2_vnni": {"MLC_NATIVE_ISA": "avx2_vnni", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI"},
    "avx2": {"MLC_NATIVE_ISA": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"},
}


@dataclass(frozen=True)
class Row:
    """Prompts that are computed at once, and the tokens generated after them."""

    kind: str  # what is reported: "prefill" or "decode"
    batch: int
    prompt_len: int
    new_tokens: int

    @property
    def label(self) -> str:
        if self.kind == "prefill":
            return f"prefill {self.prompt_len}"
        return f"decode {self.batch} at {self.prompt_len}"


def rows_named(names: str) -> list[Row]:
    """Rows such as prefill512 and decode16@1024."""
    rows = []
    for name in names.split(","):
        if name.startswith("prefill"):
            rows.append(Row("prefill", 1, int(name.removeprefix("prefill")), 1))
        else:
            batch, _, context = name.removeprefix("decode").partition("@")
            rows.append(Row("decode", int(batch), int(context or 128), 25))
    return rows


class Side(Protocol):
    """A program that measures rows."""

    name: str

    def measure(self, row: Row) -> float:
        """Tokens per second."""

    def close(self) -> None:
        """Ends the program."""


class Worker:
    """bench/peers_worker.py in a process of its own, which keeps the model between rows."""

    def __init__(
        self, name: str, python: Path, model: Path, bits: str, args: argparse.Namespace
    ) -> None:
        self.name = name
        worker = Path(__file__).with_name("peers_worker.py")
        self._process = subprocess.Popen(
            [python, worker, name, model, bits, str(args.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ISA_SETTINGS[args.isa] | {"OMP_NUM_THREADS": str(args.threads)},
            text=True,
        )
        self._answer()  # the model is loaded

    def measure(self, row: Row) -> float:
        assert self._process.stdin is not None
        print(json.dumps(vars(row)), file=self._process.stdin, flush=True)
        return float(self._answer()[row.kind])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with {self._process.wait()}")
        answer: dict[str, float] = json.loads(line)
        return answer


class LlamaCpp:
    """llama-batched-bench, started for each row; it maps the model."""

    name = "llama.cpp"

    def __init__(self, peers: Peers, bits: str, args: argparse.Namespace) -> None:
        program = peers.llama_program(
            "llama-batched-bench", "best" if args.isa == "best" else "avx2"
        )
        self._command = [
            *(program, "-m", peers.gguf_model(bits), "-t", args.threads, "-tb", args.threads),
            *("--output-format", "jsonl", "-ngl", 0),
        ]
        self._copies_prompts = True

    def measure(self, row: Row) -> float:
        if row.kind == "prefill":
            return self._run(row)["speed_pp"]
        if self._copies_prompts:
            try:
                return self._run(row, "-pps")["speed_tg"]
            except RuntimeError:
                self._copies_prompts = False
        return self._run(row)["speed_tg"]

    def _run(self, row: Row, *options: str) -> dict[str, float]:
        tokens = row.batch * row.prompt_len
        command = [
            *(*self._command, "-npp", row.prompt_len, "-ntg", row.new_tokens),
            *("-npl", row.batch, "-c", tokens + row.batch * row.new_tokens + 64),
            *("-b", max(tokens, 512), "-ub", 512, *options),
        ]
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=False
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"llama-batched-bench: {done.stderr[-2000:]}")
        figures: dict[str, float] = json.loads(lines[-1])
        return figures

    def close(self) -> None:
        pass


def open_sides(peers: Peers, bits: str, args: argparse.Namespace) -> list[Side]:
    """All sides that compute in so many bits; ours is the first."""
    has_all = bits in OPENVINO_FORMATS
    ours = peers.checkpoint if has_all else peers.gguf_model(bits)
    sides: list[Side] = [Worker("mlc_native", Path(sys.executable), ours, bits, args)]
    if "openvino" in args.peers and has_all:
        sides.append(Worker("openvino", peers.python, peers.openvino_model(bits), bits, args))
    if "llama.cpp" in args.peers:
        sides.append(LlamaCpp(peers, bits, args))
    if "transformers" in args.peers and bits == "16":
        sides.append(Worker("transformers", Path(sys.executable), peers.checkpoint, bits, args))
    return sides


def measure(sides: list[Side], row: Row, args: argparse.Namespace) -> dict[str, list[float]]:
    """Tokens per second of each round by side, after a round that does not count."""
    rates: dict[str, list[float]] = {side.name: [] for side in sides}
    if args.warm_up:
        for side in sides:
            side.measure(row)
    for i in range(args.repeats):
        for side in sides if i % 2 == 0 else reversed(sides):
            rates[side.name].append(side.measure(row))
    return rates


def cell(ours: list[float], side: list[float]) -> str:
    """Median (range), and ours over it."""
    text = f"{statistics.median(side):.0f} ({min(side):.0f}..{max(side):.0f})"
    if side is ours:
        return text
    ratio = statistics.median(a / b for a, b in zip(ours, side, strict=True))
    return f"{text}; {ratio:.2f}"


def form_of(bits: str) -> str:
    """For a reader."""
    return f"{bits} bits" if bits in OPENVINO_FORMATS else bits


def table(results: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """The results as a table in Markdown."""
    names = list(dict.fromkeys(name for rows in results.values() for row in rows.values()
                               for name in row))  # fmt: skip
    lines = [f"| | {' | '.join(names)} |", "|---|" + "--:|" * len(names)]
    for bits, rows in results.items():
        for label, rates in rows.items():
            ours = next(iter(rates.values()))
            cells = [cell(ours, rates[name]) if name in rates else "" for name in names]
            lines.append(f"| {form_of(bits)}, {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(results: dict[str, dict[str, dict[str, list[float]]]], title: str, out: Path) -> None:
    """Draws ours over each other side, a group of bars per row; the bar of 1 is equal speed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(results), 1, figsize=(11, 3.2 * len(results)), squeeze=False, sharey=True
    )
    for axis, (bits, rows) in zip(axes[:, 0], results.items(), strict=True):
        first = next(iter(rows.values()))
        others = list(first)[1:]
        for k, name in enumerate(others):
            ratios = [
                statistics.median(
                    a / b for a, b in zip(next(iter(r.values())), r[name], strict=True)
                )
                if name in r
                else math.nan
                for r in rows.values()
            ]
            places = [i + 0.8 * (k + 0.5) / len(others) - 0.4 for i in range(len(ratios))]
            bars = axis.bar(places, ratios, 0.8 / len(others), label=name)
            axis.bar_label(bars, fmt="%.2f", fontsize=7)
        axis.axhline(1, color="black", linewidth=0.8)
        labels = [label.replace(" at ", "\nat ") for label in rows]
        axis.set_xticks(range(len(rows)), labels, fontsize=8)
        axis.set_ylabel(f"{form_of(bits)}: speed of ours / other")
        axis.legend(fontsize=8)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


def default_isa() -> str:
    """The best, or "avx2" where there is no more: OpenVINO is then set up as for that."""
    return "best" if "avx512f" in Path("/proc/cpuinfo").read_text() else "avx2"


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "peers")
    parser.add_argument("--like", default="qwen3-0.6b")
    parser.add_argument("--bits", default="16,8,4")
    parser.add_argument(
        "--rows",
        default="prefill512,prefill4096,decode1,decode4,decode8,decode16,decode32,"
        "decode1@1024,decode4@1024,decode8@1024,decode16@1024",
    )
    parser.add_argument("--peers", default="openvino,llama.cpp,transformers")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--warm-up",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure a round more, which does not count; rows of minutes can do without it",
    )
    parser.add_argument("--isa", default=default_isa(), choices=list(ISA_SETTINGS))
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    parser.add_argument("--plot", type=Path, help="draw the ratios into this PNG file")
    return parser.parse_args()


def main() -> None:
    """Measures all rows and prints the table."""
    args = parse_args()
    peers = Peers(args.folder, args.like)
    results: dict[str, dict[str, dict[str, list[float]]]] = {}
    for bits in args.bits.split(","):
        sides = open_sides(peers, bits, args)
        try:
            for row in rows_named(args.rows):
                results.setdefault(bits, {})[row.label] = measure(sides, row, args)
                print(table({bits: {row.label: results[bits][row.label]}}),
                      file=sys.stderr, flush=True)  # fmt: skip
        finally:
            for side in sides:
                side.close()
    origin: dict[str, Any] = provenance() | {"peers": peers.versions(), "threads": args.threads}
    print(json.dumps(origin))
    print(table(results))
    if args.json is not None:
        args.json.write_text(json.dumps(origin | {"tokens_per_s": results}, indent=1) + "\n")
    if args.plot is not None:
        title = f"{args.like}, {args.threads} threads, {origin['cpu']}, {args.isa} ISA"
        plot(results, title, args.plot)


if __name__ == "__main__":
    main()
