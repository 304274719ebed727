"""Mixed traffic with faults for any length of time, and what is left of the process after it.

    python bench/soak.py --minutes 60 [--rate 8] [--out DIR] [--leak 100]

A process of its own serves the demo model over HTTP with little memory (bench/soak_subject.py).
Requests arrive at random times: streams, canaries with known answers, texts with known embeddings,
clients that leave or read slowly, deadlines, grammars, invalid bodies (bench/soak_traffic.py), and
requests within the process, some of them aborted. Meanwhile the model is reloaded, the helper
processes of the grammars are killed, and the engine's state is audited. Every --rest-s seconds no
request starts until those in flight have ended; memory, threads and open files are then read
(bench/soak_report.py).

The exit status is 1 if a request was lost, answered twice or wrongly, if an audit failed, if there
are more threads or open files at the end, or if the memory grows by more than --max-slope MiB per
hour after the warm-up (a third of the run, at most 15 minutes). --leak keeps that many bytes per
request: the run must then fail.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

from machine import ROOT
from soak_report import Run, Sample, plot, report, warm_up
from soak_traffic import WEIGHTS, Kind, Traffic, run_one

MAX_IN_FLIGHT = 64
NUM_CANARIES = 12


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

    def sample(self, run: Run, told: dict[str, float]) -> Sample:
        """What it has told of its memory, and what /proc says."""
        status = dict(
            line.split(":", 1) for line in (self._proc / "status").read_text().splitlines()
        )
        return Sample(
            minutes=round(run.minutes(), 3),
            rss=int(status["VmRSS"].split()[0]) / 1024,
            mapped_files=int(status["RssFile"].split()[0]) / 1024,
            malloc_used=told["malloc_used"] / (1 << 20),
            malloc_free=told["malloc_free"] / (1 << 20),
            python_used=told["python_used"] / (1 << 20),
            python_arenas=told["python_arenas"] / (1 << 20),
            python_blocks=int(told["python_blocks"]),
            threads=int(status["Threads"]),
            fds=len(list((self._proc / "fd").iterdir())),
            requests=run.num_requests(),
        )

    def stop(self) -> int:
        """Ends the process; its exit status."""
        self._write("stop")
        return self._process.wait(120)


# ------------------------------------------------------------------------------ what happens


class Gate:
    """The requests in flight; further ones wait while the subject is to be at rest."""

    def __init__(self) -> None:
        self._in_flight: set[asyncio.Task[None]] = set()
        self._opened = asyncio.Event()
        self._opened.set()

    def has_room(self) -> bool:
        return len(self._in_flight) < MAX_IN_FLIGHT

    def start(self, request: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(request)
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def opened(self) -> None:
        await self._opened.wait()

    async def drained(self) -> None:
        while self._in_flight:
            await asyncio.wait(self._in_flight)

    @contextlib.asynccontextmanager
    async def rest(self) -> AsyncIterator[None]:
        self._opened.clear()
        try:
            await self.drained()
            yield
        finally:
            self._opened.set()


async def send(traffic: Traffic, gate: Gate, run: Run, args: argparse.Namespace) -> None:
    """Starts requests at random times until the end, then waits for those in flight."""
    draw = random.Random(args.seed)
    kinds = [kind for kind in WEIGHTS if kind.__name__ in (args.only or kind.__name__)]
    weights = [WEIGHTS[kind] for kind in kinds]

    async def one(kind: Kind) -> None:
        run.count(kind.__name__, await run_one(traffic, kind))

    while run.minutes() < args.minutes:
        await asyncio.sleep(draw.expovariate(args.rate))
        await gate.opened()
        if gate.has_room():
            gate.start(one(draw.choices(kinds, weights)[0]))
    await gate.drained()


async def every(seconds: float, run: Run, args: argparse.Namespace, action: Any) -> None:
    while run.minutes() + seconds / 60 < args.minutes:
        await asyncio.sleep(seconds)
        await action()


class Soak:
    """One run: the commands to the subject, and what they tell."""

    def __init__(self, subject: Subject, args: argparse.Namespace) -> None:
        self._subject = subject
        self._args = args
        self._gate = Gate()
        self._run = Run()

    async def run(self) -> Run:
        run, args = self._run, self._args
        traffic = Traffic(self._subject.url, args.seed)
        await traffic.learn_canaries(NUM_CANARIES)
        run.restart()
        await asyncio.gather(
            send(traffic, self._gate, run, args),
            every(15, run, args, lambda: self._command("audit")),
            every(args.rest_s, run, args, self._rest),
            every(args.reload_s, run, args, lambda: self._command("reload")),
            every(41, run, args, self._kill),
            every(5, run, args, self._generate) if args.only is None else asyncio.sleep(0),
        )
        for number in range(NUM_CANARIES):  # alone again
            answer = await traffic.ask_canary(number)
            run.count("canary", "ended" if answer == traffic.expected(number) else "wrong_answer")
        await self._rest()
        run.objects["end"] = await self._objects()
        metrics = (await self._command("metrics")).get("metrics", {})
        run.events["preemptions"] = int(metrics.get("num_preemptions", 0))
        return run

    async def _command(self, name: str) -> dict[str, Any]:
        answer = await self._subject.do(name)
        self._run.events[name] += 1
        if "failed" in answer:
            self._run.problem(f"{name}: {answer['failed']}")
        return answer

    async def _rest(self) -> None:
        run = self._run
        async with self._gate.rest():
            told = await self._command("rest")
            if "failed" in told:
                return
            run.samples.append(self._subject.sample(run, told))
            if "warm" not in run.objects and run.minutes() > warm_up(self._args.minutes):
                run.objects["warm"] = await self._objects()
        print(run.samples[-1], file=sys.stderr, flush=True)

    async def _objects(self) -> Counter[str]:
        return Counter((await self._command("objects")).get("objects", {}))

    async def _generate(self) -> None:
        answer = await self._command("generate")
        self._run.count("in_process", "ended", answer.get("ended", 0))
        self._run.count("in_process", "lost", answer.get("asked", 0) - answer.get("ended", 0))

    async def _kill(self) -> None:
        self._run.events["helpers killed"] += self._subject.kill_helpers()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=8, help="requests per second")
    parser.add_argument("--reload-s", type=float, default=300, help="seconds between reloads")
    parser.add_argument("--rest-s", type=float, default=60, help="seconds between samples")
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
    run = asyncio.run(Soak(subject, args).run())
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
