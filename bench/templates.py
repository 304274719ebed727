"""Measures chat templates: the time of a rendering in C++ and in jinja2's sandbox.

    python bench/templates.py                     the templates of tests/python/family_templates.py
    python bench/templates.py FOLDER              all *.jinja below a folder
    python bench/templates.py --messages 64       of a longer chat

Prints a line for each template: compiling and rendering in microseconds, the least of some runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "python")]

from family_templates import FAMILIES  # noqa: E402
from template_programs import HISTORIES, TOOLS  # noqa: E402

from mlc_native.template_sandbox import Limits  # noqa: E402
from mlc_native.template_sandbox.chat import chat_environment  # noqa: E402
from mlc_native.template_sandbox.native import NativeTemplate  # noqa: E402


def least_us(function: Callable[[], object], seconds: float = 0.05) -> float:
    """The time of the fastest run in microseconds."""
    times = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1e6


def measure(source: str, given: dict[str, Any]) -> tuple[float, float, float, float] | None:
    """Compiling and rendering in C++ and in jinja2; None if one of them does not render it."""
    environment, own = chat_environment(), {"bos_token": "<s>", "eos_token": "</s>"}
    native = NativeTemplate.compile(source)
    try:
        template = environment.from_string(source)
        text = environment.render(template, given, Limits(), own=own)
    except Exception:
        return None
    if native is None or native.render(given, own, Limits(), trusted=False) != text:
        return None
    renders: NativeTemplate = native
    return (
        least_us(lambda: NativeTemplate.compile(source)),
        least_us(lambda: environment.from_string(source), seconds=0),
        least_us(lambda: renders.render(given, own, Limits(), trusted=False)),
        least_us(lambda: environment.render(template, given, Limits(), own=own)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--messages", type=int, default=8)
    options = parser.parse_args()
    sources = dict(FAMILIES)
    if options.folder is not None:
        paths = sorted(options.folder.rglob("*.jinja"))
        sources = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    turns = HISTORIES["calls"][:-1]
    messages = (turns * options.messages)[: options.messages]
    given = {"messages": messages, "tools": TOOLS, "add_generation_prompt": True}
    print(f"{'template':40} compile C++  jinja2   render C++  jinja2   times")
    ratios = []
    for name, source in sources.items():
        times = measure(source, given)
        if times is None:
            print(f"{name[:40]:40} is not rendered by both")
            continue
        ratios.append(times[3] / times[2])
        numbers = (*times, ratios[-1])
        print(f"{name[:40]:40} {'{:10.0f} {:9.0f} {:11.0f} {:9.0f} {:6.1f}'.format(*numbers)}")
    print(f"median: {statistics.median(ratios):.1f} times as fast")


if __name__ == "__main__":
    main()
