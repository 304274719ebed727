"""What a run of bench/soak.py has seen, and the judgement of it.

Samples are taken at rest, when no request is in flight, so that they can be compared: what grows
between them is kept by something.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from machine import commit, cpu_name
from soak_traffic import FAULTS

MAX_PROBLEMS = 50
MAX_MORE = 2  # threads or open files at the end of a run, compared with its beginning


@dataclass
class Sample:
    """What the subject and /proc say about the subject at rest. Memory in MiB."""

    minutes: float
    rss: float
    mapped_files: float
    malloc_used: float
    malloc_free: float
    python_used: float  # of Python's allocator of small objects
    python_arenas: float  # what it has from the system
    python_blocks: int
    threads: int
    fds: int
    requests: int

    @property
    def used(self) -> float:
        """What somebody holds, without what allocators keep for later."""
        return self.malloc_used + self.python_used


@dataclass
class Run:
    """What a run has seen so far."""

    start: float = field(default_factory=time.monotonic)
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    samples: list[Sample] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    events: Counter[str] = field(default_factory=Counter)
    objects: dict[str, Counter[str]] = field(default_factory=dict)  # by type, at two times

    def restart(self) -> None:
        """The time begins now."""
        self.start = time.monotonic()

    def minutes(self) -> float:
        return (time.monotonic() - self.start) / 60

    def count(self, kind: str, outcome: str, number: int = 1) -> None:
        if number == 0:
            return
        outcome, _, detail = outcome.partition(": ")
        self.outcomes.setdefault(kind, Counter())[outcome] += number
        if outcome in FAULTS:
            self.problem(f"{kind}: {outcome} {detail}")

    def problem(self, text: str) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{self.minutes():.1f} min: {text}")

    def num_requests(self) -> int:
        return sum(outcome.total() for outcome in self.outcomes.values())

    def num_faults(self) -> int:
        return sum(outcome[name] for outcome in self.outcomes.values() for name in FAULTS)


Figure = Callable[[Sample], float]


def slope(samples: list[Sample], figure: Figure, period_s: float) -> float:
    """Per hour: the median of the slopes of all pairs (Theil and Sen).

    A figure rises and falls with each reload of the model, as caches fill. So pairs count that are
    a multiple of that period apart, if there are any.
    """
    pairs = [(a, b, 60 * (b.minutes - a.minutes)) for a, b in combinations(samples, 2)]
    like = [pair for pair in pairs if _is_multiple(pair[2], period_s)]
    slopes = [3600 * (figure(b) - figure(a)) / seconds for a, b, seconds in like or pairs]
    return statistics.median(slopes) if slopes else 0.0


def _is_multiple(seconds: float, period_s: float) -> bool:
    """Within a fifth of the period."""
    periods = seconds / period_s
    return periods > 0.8 and abs(periods - round(periods)) < 0.2


def increase(samples: list[Sample], figure: Figure) -> float:
    """From the first quarter to the last one, the median of each."""
    quarter = max(1, len(samples) // 4)
    first, last = samples[:quarter], samples[-quarter:]
    return statistics.median(map(figure, last)) - statistics.median(map(figure, first))


def warm_up(minutes: float) -> float:
    """Minutes of a run of this length whose samples do not count."""
    return min(15, minutes / 3)


def judge(run: Run, warm: list[Sample], args: argparse.Namespace) -> list[str]:
    """What is wrong with the memory, the threads and the files of the subject."""
    if len(warm) < 3:
        return [f"only {len(warm)} samples after the warm-up"]
    problems = []
    for name, figure in (
        ("memory", _rss),
        ("memory in use", _used),
        ("memory in use by Python's small objects", _python),
    ):
        growth = slope(warm, figure, args.reload_s)
        if growth > args.max_slope:
            problems.append(f"{name} grows by {growth:.2f} MiB per hour")
    for name, figure in (("threads", _threads), ("open files", _fds)):
        more = increase(warm, figure)
        if more > MAX_MORE:
            problems.append(f"there are {more:g} more {name} at the end")
    return problems


def report(run: Run, exit_status: int, args: argparse.Namespace) -> tuple[str, bool]:
    """The report as Markdown, and whether the run was good."""
    warm = [s for s in run.samples if s.minutes > warm_up(args.minutes)]
    problems = [*run.problems, *judge(run, warm, args)]
    if exit_status != 0:
        problems.append(f"the subject ended with status {exit_status}")
    names = sorted({name for outcome in run.outcomes.values() for name in outcome})
    lines = [
        f"`python bench/soak.py --minutes {args.minutes:g} --rate {args.rate:g} --seed {args.seed}"
        + (f" --leak {args.leak}`" if args.leak else "`")
        + f" at commit {commit()} on {cpu_name()}: {run.num_requests()} requests, "
        f"{run.num_faults()} faults.",
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
        *_growth(warm, args.reload_s),
        "",
        more_objects(run),
        *(f"- {problem}" for problem in problems),
    ]
    return "\n".join(lines) + "\n", not problems


def more_objects(run: Run) -> str:
    """Of which types of Python there are more at the end than after the warm-up."""
    more = run.objects.get("end", Counter()) - run.objects.get("warm", Counter())
    named = ", ".join(f"{name} {number}" for name, number in more.most_common(8))
    return f"Objects of Python that became more: {named or 'none'}."


def _rss(sample: Sample) -> float:
    return sample.rss


def _used(sample: Sample) -> float:
    return sample.used


def _python(sample: Sample) -> float:
    return sample.python_used


def _threads(sample: Sample) -> float:
    return sample.threads


def _fds(sample: Sample) -> float:
    return sample.fds


FIGURES: dict[str, Figure] = {
    "memory (RSS), MiB": _rss,
    "of it: files that are mapped": lambda s: s.mapped_files,
    "in use, of malloc and of Python's small objects": _used,
    "of malloc": lambda s: s.malloc_used,
    "of Python's small objects": _python,
    "free in malloc": lambda s: s.malloc_free,
    "free in Python's arenas": lambda s: s.python_arenas - s.python_used,
    "blocks of Python's small objects": lambda s: s.python_blocks,
    "threads": _threads,
    "open files": _fds,
}


def _growth(warm: list[Sample], period_s: float) -> list[str]:
    """A table of what the samples after the warm-up show."""
    if not warm:
        return ["No samples."]
    lines = [
        "| at rest, after the warm-up | first | last | least | most | per hour |",
        "|---|" + "--:|" * 5,
    ]
    for name, figure in FIGURES.items():
        values = [figure(sample) for sample in warm]
        cells = [f"{v:.1f}" for v in (values[0], values[-1], min(values), max(values))]
        lines.append(
            f"| {name} | " + " | ".join([*cells, f"{slope(warm, figure, period_s):.2f}"]) + " |"
        )
    return lines


def plot(samples: list[Sample], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(4, 1, sharex=True, figsize=(8, 9))
    minutes = [s.minutes for s in samples]
    rows: dict[str, Figure] = {
        "memory (MiB)": _rss,
        "in use (MiB)": _used,
        "threads": _threads,
        "open files": _fds,
    }
    for axis, (name, value) in zip(axes, rows.items(), strict=True):
        axis.plot(minutes, [value(sample) for sample in samples])
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
