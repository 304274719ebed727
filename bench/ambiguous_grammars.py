"""What a plain request pays for another one's ambiguous grammar: the times between its tokens.

    python bench/ambiguous_grammars.py
    python bench/ambiguous_grammars.py --like qwen3-0.6b --dtype bfloat16 --tokens 60

A matcher of an ambiguous grammar gets slower with every token. Requests without a grammar are
measured alone, then next to one request of each shape that has been answered for a while. The
first of them has no grammar: it shows what any second request costs. p50 and p99 are of the times
between two tokens of a plain request, over all repeats. `slow` shows what became of the other
request: how many chunks it got, and how it ended.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from common import add_model_arguments, model_folder

from mlc_native import MLCEngine


def ebnf(text: str) -> dict[str, Any]:
    return {"type": "grammar", "grammar": text}


CONSTRAINT: dict[str, Any] = {
    "ignore_eos": True,
    "debug_config": {"grammar_execution_mode": "constraint"},
}
SHAPES: dict[str, dict[str, Any] | None] = {
    "a plain request": None,
    "itself twice": ebnf('root ::= root root | "a" | ""'),
    "itself three times": ebnf('root ::= root root root | "a" | ""'),
    "nested optional repeats": ebnf('root ::= (("a"? "a"? "a"?)* "a"?)*'),
    "left recursion, 1 to 3 letters": ebnf('root ::= root ("a" | "aa" | "aaa") | root root | "a"'),
    "several rules": ebnf(
        'root ::= x y z\nx ::= "a" x | "" | y\ny ::= "a" y | "" | z\nz ::= "a" z | "" | "a" x'
    ),
    "from both sides": ebnf('root ::= s\ns ::= "" | "a" s | s "a" | "a" s "a" | s s'),
    "operators": ebnf('root ::= root [ab] root | root "a" root | [ab]'),
    "schema with a nested pattern": {
        "type": "json_schema",
        "json_schema": {
            "name": "nested",
            "schema": {"type": "string", "pattern": "^((a|aa)+(a?b?)*)*$"},
        },
    },
    "structural tag": {
        "type": "structural_tag",
        "format": {
            "type": "sequence",
            "elements": [{"type": "grammar", "grammar": 'root ::= root root | "a" | ""'}] * 2,
        },
    },
}


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Other(threading.Thread):
    """A request whose answer goes on for as long as its grammar is bearable."""

    def __init__(
        self, engine: MLCEngine, response_format: dict[str, Any] | None, max_tokens: int
    ) -> None:
        super().__init__(daemon=True)
        self._stream = engine.completions.create(
            prompt="x",
            stream=True,
            request_id="other",
            max_tokens=max_tokens,
            temperature=1,
            seed=1,
            logit_bias=letters(engine),
            response_format=response_format,
            extra_body={
                "ignore_eos": True,
                "debug_config": {"grammar_execution_mode": "constraint"},
            },
        )
        self.num_chunks = 0
        self.end = "goes on"

    def run(self) -> None:
        try:
            for chunk in self._stream:
                self.num_chunks += 1
                self.end = chunk.choices[0].finish_reason or self.end
        except Exception as error:
            self.end = str(error)


def letters(engine: MLCEngine) -> dict[str, float]:
    """A bias for single letters, so that the answer is long in tokens."""
    ids = [engine.tokenizer.encode(text) for text in ("a", "b")]
    return {str(each[0]): 30.0 for each in ids if len(each) == 1}


@contextmanager
def alongside(engine: MLCEngine, shape: str | None, args: argparse.Namespace) -> Iterator[Any]:
    if shape is None:
        yield None
        return
    other = Other(engine, SHAPES[shape], args.other_tokens)
    other.start()
    deadline = time.monotonic() + args.warm_up
    while time.monotonic() < deadline and other.is_alive():
        time.sleep(0.01)
    yield other
    engine.abort("other")
    other.join()


def intervals(engine: MLCEngine, num_tokens: int) -> list[float]:
    times = []
    for _ in engine.completions.create(
        prompt="Hello",
        stream=True,
        max_tokens=num_tokens,
        temperature=0,
        extra_body={"ignore_eos": True},
    ):
        times.append(time.perf_counter())
    return [after - before for before, after in pairwise(times)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_model_arguments(parser)
    parser.add_argument("--tokens", type=int, default=200, help="of each plain request")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--other-tokens", type=int, default=2000)
    parser.add_argument("--warm-up", type=float, default=1.5, help="seconds before measuring")
    parser.add_argument("--shapes", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--step-budget", type=float, help="grammar_step_budget_s")
    args = parser.parse_args()
    settings: dict[str, Any] = {"verbose": False, "num_threads": args.threads}
    settings["max_total_sequence_length"] = 8192
    if args.step_budget is not None:
        settings["grammar_step_budget_s"] = args.step_budget
    with model_folder(args) as folder, MLCEngine(folder, device=args.device, **settings) as engine:
        print("| next to | p50 ms | p99 ms | max ms | p99, times | slow |")
        print("|---|--:|--:|--:|--:|---|")
        alone = 0.0
        intervals(engine, args.tokens)
        for shape in [None, *args.shapes]:
            with alongside(engine, shape, args) as other:
                times = []
                for _ in range(args.repeats):
                    times += intervals(engine, args.tokens)
                p50, p99 = (1e3 * percentile(times, share) for share in (0.5, 0.99))
                alone = alone or p99
                state = f"{other.num_chunks} chunks, {other.end[:60]}" if other else ""
            print(
                f"| {shape or 'nothing'} | {p50:.2f} | {p99:.2f} | {1e3 * max(times):.1f} | "
                f"{p99 / alone:.2f} | {state} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
