"""Mixed traffic with faults for any length of time, and what is left of the process after it.

    python bench/soak.py --minutes 60 [--rate 8] [--out DIR] [--leak 100]

A process of its own serves the demo model over HTTP with little memory (bench/soak_subject.py).
Requests arrive at random times: streams, canaries with known answers, clients that leave or read
slowly, deadlines, grammars, invalid bodies (bench/soak_traffic.py), and requests within the
process, some of them aborted. Meanwhile the model is reloaded, the helper processes of the grammars
are killed, and the engine's state is audited. Memory, threads and open files are read from /proc
after each audit.

The exit status is 1 if a request was lost, answered twice or wrongly, if an audit failed, or if the
memory grows by more than --max-slope MiB per hour after the warm-up (a third of the run, at most
15 minutes). --leak keeps that many bytes per request: the run must then fail.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from machine import ROOT, cpu_name
from soak_traffic import FAULTS, WEIGHTS, Kind, Traffic, run_one

MAX_IN_FLIGHT = 64
NUM_CANARIES = 12


@dataclass
class Sample:
    """What /proc says about the subject."""

    minutes: float
    rss_mib: float
    file_mib: float  # of it: files that are mapped
    heap_mib: float  # in use, of malloc
    python_mib: float  # of Python's allocator of small objects
    num_threads: int
    num_fds: int
    num_requests: int


@dataclass
class Run:
    """What a run has seen so far."""

    start: float = field(default_factory=time.monotonic)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)

    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60

    def count(self, kind: str, outcome: str, number: int = 1) -> None:
        if number == 0:
            return
        outcome, _, detail = outcome.partition(": ")
        self.outcomes.setdefault(kind, Counter())[outcome] += number
        if outcome in FAULTS and len(self.problems) < 50:
            self.problems.append(f"{self.minutes():.1f} min: {kind}: {outcome} {detail}")

    def num_requests(self) -> int:
        return sum(outcome.total() for outcome in self.outcomes.values())


class Subject:
    """The process that is watched, and the commands to it."""

    def __init__(self, args: argparse.Namespace) -> None:
        command = [sys.executable, str(ROOT / "bench" / "soak_subject.py")]
        command += [f"--{name}={getattr(args, name)}" for name in ("model", "seed", "leak")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._lock = asyncio.Lock()
        ready = json.loads(self._read())
        self.url: str = ready["url"]
        self._proc = Path(f"/proc/{ready['pid']}")

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"the subject has ended with status {self._process.wait()}")
        return line

    async def do(self, name: str) -> dict[str, Any]:
        async with self._lock:
            self._write(name)
            answer: dict[str, Any] = json.loads(await asyncio.to_thread(self._read))
        return answer

    def _write(self, name: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": name}) + "\n")
        self._process.stdin.flush()

    def kill_helpers(self) -> int:
        """Kills the helper processes of the grammars; returns their number."""
        helpers = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended
                status = (process / "stat").read_text()
                if status.rpartition(")")[2].split()[1] == self._proc.name:
                    helpers.append(int(process.name))
        for pid in helpers:
            os.kill(pid, signal.SIGKILL)
        return len(helpers)

    def sample(self, run: Run, audit: dict[str, Any]) -> Sample:
        status = dict(
            line.split(":", 1) for line in (self._proc / "status").read_text().splitlines()
        )
        return Sample(
            round(run.minutes(), 3),
            int(status["VmRSS"].split()[0]) / 1024,
            int(status["RssFile"].split()[0]) / 1024,
            audit.get("heap_bytes", 0) / (1 << 20),
            audit.get("python_bytes", 0) / (1 << 20),
            int(status["Threads"]),
            len(list((self._proc / "fd").iterdir())),
            run.num_requests(),
        )

    def stop(self) -> int:
        """Ends the process; its exit status."""
        self._write("stop")
        return self._process.wait(120)


# ------------------------------------------------------------------------------ what happens


async def send(traffic: Traffic, run: Run, args: argparse.Namespace) -> None:
    """Starts requests at random times until the end, then waits for those in flight."""
    draw = random.Random(args.seed)
    kinds = [kind for kind in WEIGHTS if kind.__name__ in (args.only or kind.__name__)]
    weights = [WEIGHTS[kind] for kind in kinds]
    in_flight: set[asyncio.Task[None]] = set()

    async def one(kind: Kind) -> None:
        run.count(kind.__name__, await run_one(traffic, kind))

    while run.minutes() < args.minutes:
        await asyncio.sleep(draw.expovariate(args.rate))
        if len(in_flight) < MAX_IN_FLIGHT:
            task = asyncio.create_task(one(draw.choices(kinds, weights)[0]))
            in_flight.add(task)
            task.add_done_callback(in_flight.discard)
    await asyncio.gather(*in_flight)


async def every(seconds: float, run: Run, args: argparse.Namespace, action: Any) -> None:
    while run.minutes() + seconds / 60 < args.minutes:
        await asyncio.sleep(seconds)
        await action()


async def soak(subject: Subject, args: argparse.Namespace) -> Run:
    traffic = Traffic(subject.url, args.seed)
    await traffic.learn_canaries(NUM_CANARIES)
    run = Run()

    async def command(name: str) -> dict[str, Any]:
        answer = await subject.do(name)
        run.events[name] += 1
        if "failed" in answer:
            run.problems.append(f"{run.minutes():.1f} min: {name}: {answer['failed']}")
        return answer

    async def watch() -> None:
        run.samples.append(subject.sample(run, await command("audit")))

    async def generate() -> None:
        answer = await command("generate")
        run.count("in_process", "ended", answer.get("ended", 0))
        run.count("in_process", "lost", answer.get("asked", 0) - answer.get("ended", 0))

    async def kill() -> None:
        run.events["helpers killed"] += subject.kill_helpers()

    await asyncio.gather(
        send(traffic, run, args),
        every(min(15, 2 * args.minutes), run, args, watch),
        every(args.reload_s, run, args, lambda: command("reload")),
        every(41, run, args, kill),
        every(5, run, args, generate) if args.only is None else asyncio.sleep(0),
    )
    for number in range(NUM_CANARIES):  # alone again
        answer = await traffic.ask_canary(number)
        run.count("canary", "ended" if answer == traffic.expected(number) else "wrong_answer")
    await watch()
    run.events["preemptions"] = int((await command("metrics"))["metrics"]["num_preemptions"])
    return run


# ------------------------------------------------------------------------------ the judgement


def slope(samples: list[Sample], name: str = "rss_mib") -> float:
    """MiB per hour: the median of the slopes of all pairs (Theil and Sen)."""
    slopes = [
        60 * (getattr(b, name) - getattr(a, name)) / (b.minutes - a.minutes)
        for i, a in enumerate(samples)
        for b in samples[i + 1 :]
    ]
    return statistics.median(slopes) if slopes else 0.0


def report(run: Run, exit_status: int, args: argparse.Namespace) -> tuple[str, bool]:
    """The report as Markdown, and whether the run was good."""
    warm = [s for s in run.samples if s.minutes > min(15, args.minutes / 3)]
    growth = slope(warm)
    problems = list(run.problems)
    num_faults = sum(outcome[name] for outcome in run.outcomes.values() for name in FAULTS)
    if exit_status != 0:
        problems.append(f"the subject ended with status {exit_status}")
    if growth > args.max_slope:
        problems.append(f"memory grows by {growth:.2f} MiB per hour")
    names = sorted({name for outcome in run.outcomes.values() for name in outcome})
    lines = [
        f"`python bench/soak.py --minutes {args.minutes:g} --rate {args.rate:g} --seed {args.seed}"
        + (f" --leak {args.leak}`" if args.leak else "`")
        + f" on {cpu_name()}: {run.num_requests()} requests, {num_faults} faults.",
        "",
        "| kind | " + " | ".join(names) + " |",
        "|---|" + "--:|" * len(names),
        *(
            f"| {kind} | " + " | ".join(str(outcome[name]) for name in names) + " |"
            for kind, outcome in sorted(run.outcomes.items())
        ),
        "",
        ", ".join(f"{name}: {number}" for name, number in run.events.items()) + ".",
        "",
        f"After the warm-up: memory {change(warm, 'rss_mib')}; of it files that are mapped "
        f"{change(warm, 'file_mib')}, malloc {change(warm, 'heap_mib')}, Python's small objects "
        f"{change(warm, 'python_mib')}; threads {extent([s.num_threads for s in warm])}; open "
        f"files {extent([s.num_fds for s in warm])}.",
        *(f"- {problem}" for problem in problems),
    ]
    return "\n".join(lines) + "\n", not problems and num_faults == 0


def change(samples: list[Sample], name: str) -> str:
    first, last = getattr(samples[0], name), getattr(samples[-1], name)
    return f"{first:.1f} to {last:.1f} MiB, slope {slope(samples, name):.2f} MiB per hour"


def extent(numbers: list[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}"


def plot(samples: list[Sample], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, sharex=True, figsize=(8, 9))
    minutes = [s.minutes for s in samples]
    rows = {
        "memory (MiB)": [s.rss_mib for s in samples],
        "malloc (MiB)": [s.heap_mib for s in samples],
        "threads": [s.num_threads for s in samples],
        "open files": [s.num_fds for s in samples],
    }
    for axis, (name, values) in zip(axes, rows.items(), strict=True):
        axis.plot(minutes, values)
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=8, help="requests per second")
    parser.add_argument("--reload-s", type=float, default=300, help="seconds between reloads")
    parser.add_argument("--max-slope", type=float, default=1, help="MiB per hour")
    parser.add_argument("--leak", type=int, default=0, help="bytes kept per request")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=[kind.__name__ for kind in WEIGHTS],
        help="kinds of requests; to find out which one costs memory",
    )
    parser.add_argument("--model", default="demo")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for soak.md, soak.json and soak.png")
    args = parser.parse_args()
    subject = Subject(args)
    run = asyncio.run(soak(subject, args))
    text, is_good = report(run, subject.stop(), args)
    print(text)
    if args.out is not None:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "soak.md").write_text(text)
        (args.out / "soak.json").write_text(json.dumps([vars(s) for s in run.samples]))
        plot(run.samples, args.out / "soak.png")
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
