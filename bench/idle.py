"""What an engine costs while it has nothing to do: processor time, and how often its threads wake.

    python bench/idle.py [--model DIR] [--quantization q8] [--threads 2] [--seconds 10]

For each way in which threads wait between loops (`EngineConfig.cpu_idle_mode`), an engine is
watched before its first request, behind it, while it answers one short request per second, and
while it answers as many in a row. What the third takes beyond the fourth is spent waiting.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable

from common import add_model_arguments, engine_config, model_folder
from machine import provenance

from mlc_native import MLCEngine

MODES = ("spin", "park")


def watched(run: Callable[[], None]) -> dict[str, float]:
    """Processor time and voluntary context switches of the process while `run` runs."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run()
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "wall_s": round(wall, 3),
        "cpu_ms_per_s": round(1000 * used / wall, 3),
        "wakes_per_s": round((after.ru_nvcsw - before.ru_nvcsw) / wall, 1),
        "cpu_ms": round(1000 * used, 2),
    }


def measure(engine: MLCEngine, seconds: int) -> dict[str, dict[str, float]]:
    """All rows for one engine."""

    def answer() -> None:
        engine.completions.create(prompt=[1, 2, 3, 4], max_tokens=4, temperature=0)

    def answer_each_second() -> None:
        end = time.monotonic()
        for _ in range(seconds):
            end += 1
            answer()
            time.sleep(max(0.0, end - time.monotonic()))

    def answer_all() -> None:
        for _ in range(seconds):
            answer()

    rows = {"before the first request": watched(lambda: time.sleep(seconds))}
    answer()
    rows["behind an answer"] = watched(lambda: time.sleep(seconds))
    rows["one answer per second"] = watched(answer_each_second)
    rows["answers in a row"] = watched(answer_all)
    return rows


def main() -> None:
    """Prints one line of JSON for each mode."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser)
    parser.add_argument("--seconds", type=int, default=10)
    args = parser.parse_args()
    print(json.dumps(provenance()))
    with model_folder(args) as folder:
        for mode in MODES:
            config = engine_config(args, cpu_idle_mode=mode)
            with MLCEngine(folder, device=args.device, engine_config=config) as engine:
                print(json.dumps({"cpu_idle_mode": mode} | measure(engine, args.seconds)))


if __name__ == "__main__":
    main()
