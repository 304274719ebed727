"""Measures latencies and throughput of requests that arrive at random times, for several rates.

    python bench/serving.py --like qwen3-0.6b --quantization q8 --rates 0.5 1 2 4 \
        --requests 60 --prompt-tokens 64:256 --output-tokens 32:128 --json out.json --plot out.png
    python bench/serving.py --model demo --rates 20 inf --duration 5

A rate is in requests per second (inf: all at once, with --requests). Prompts are random tokens, so
the prefix cache never hits. Time to first token and end-to-end time count from the time at which a
request was due. load_generator.py describes the load. --plot needs matplotlib: pip install
"mlc_native[bench]".
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any

from common import add_model_arguments, describe_model, engine_config, model_folder
from load_generator import (
    PERCENTILES,
    Lengths,
    LoadGenerator,
    Workload,
    draw_arrivals,
    summarize,
)
from machine import provenance
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from mlc_native import AsyncMLCEngine

LATENCIES = {
    "ttft_s": "time to first token",
    "inter_token_s": "inter-token latency",
    "end_to_end_s": "end to end",
    "queue_s": "queue",
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0], help="requests per second")
    parser.add_argument("--requests", type=int, help="per rate; default 64 without --duration")
    parser.add_argument("--duration", type=float, help="seconds of arrivals per rate")
    parser.add_argument("--prompt-tokens", type=Lengths.parse, default="128", metavar="N|LOW:HIGH")
    parser.add_argument("--output-tokens", type=Lengths.parse, default="64", metavar="N|LOW:HIGH")
    parser.add_argument("--max-sequences", type=int, default=16, help="that run at the same time")
    parser.add_argument("--prefill-chunk", type=int, help="tokens; default: the engine's")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--plot", type=Path, help="write latencies and throughput as PNG here")
    args = parser.parse_args(argv)
    if args.requests is None and args.duration is None:
        args.requests = 64
    if args.requests is None and math.inf in args.rates:
        parser.error("--rates inf needs --requests")
    if min(args.rates) <= 0:
        parser.error("--rates must be positive")
    return args


def start_engine(args: argparse.Namespace, path: str) -> AsyncMLCEngine:
    """An engine with room for --max-sequences of the longest requests, and any number waiting."""
    longest = args.prompt_tokens.high + args.output_tokens.high
    config = engine_config(
        args,
        max_num_sequence=args.max_sequences,
        max_single_sequence_length=longest,
        max_total_sequence_length=args.max_sequences * math.ceil(longest / 16) * 16,
        prefill_chunk_size=args.prefill_chunk,
        max_queue_length=-1,
    )
    return AsyncMLCEngine(
        path,
        device=args.device,
        model_lib=args.model_lib,
        mode="server",
        engine_config=config,
    )


async def measure(args: argparse.Namespace, path: str) -> list[dict[str, Any]]:
    """A summary per rate."""
    workload = Workload(args.prompt_tokens, args.output_tokens, args.requests, args.duration)
    async with await asyncio.to_thread(start_engine, args, path) as engine:
        vocab_size = engine.model_config_dicts[0]["vocab_size"]
        two = dataclasses.replace(workload, num_requests=2, duration_s=None)
        warm_up = draw_arrivals(math.inf, two, vocab_size, (args.seed,))
        await LoadGenerator(engine, lambda: None).run(math.inf, warm_up, "warm-up")
        summaries = []
        for i, rate in enumerate(args.rates):
            arrivals = draw_arrivals(rate, workload, vocab_size, (args.seed, i + 1))
            progress = tqdm(
                total=len(arrivals), desc=f"{rate:g} requests/s", leave=False, disable=None
            )
            with progress:
                run = await LoadGenerator(engine, progress.update).run(rate, arrivals, f"rate-{i}")
            summaries.append(summarize(run))
        return summaries


def print_table(summaries: list[dict[str, Any]], title: str) -> None:
    """Milliseconds as p50 / p90 / p99."""
    table = Table(title=title, caption="latencies in ms: p50 / p90 / p99", title_justify="left")
    for column in ("requests/s", "served/s", "tokens/s", *LATENCIES.values(), "failed"):
        table.add_column(column, justify="right", no_wrap=True)
    for s in summaries:
        table.add_row(
            f"{float(s['rate']):g}",
            f"{s['requests_per_s']:.2f}",
            f"{s['output_tokens_per_s']:.1f}",
            *(milliseconds(s[name]) for name in LATENCIES),
            str(s["failed"]),
        )
    Console(width=None if sys.stdout.isatty() else 160).print(table)
    worst = max(summaries, key=lambda s: s["generator_late_s"].get("p99", 0.0))
    share = max(s["generator_cpu_share"] for s in summaries)
    print(
        f"the load generator used at most {share:.1%} of a core and sent requests "
        f"{milliseconds(worst['generator_late_s'])} ms late (p50 / p90 / p99 of the worst rate)"
    )


def milliseconds(values: dict[str, float]) -> str:
    """ "p50 / p90 / p99", with three digits or more."""
    if not values:
        return "-"
    cuts = [values[f"p{p}"] * 1e3 for p in PERCENTILES]
    return " / ".join(f"{cut:.0f}" if cut >= 100 else f"{cut:.3g}" for cut in cuts)


def plot(summaries: list[dict[str, Any]], title: str, path: Path) -> None:
    """Plots latencies by percentile and throughput; the rates are equally spaced ticks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ticks, labels = range(len(summaries)), [f"{float(s['rate']):g}" for s in summaries]
    figure, axes = pyplot.subplots(1, len(LATENCIES) + 1, figsize=(17, 3.4), layout="constrained")
    for axis, (name, label) in zip(axes, LATENCIES.items(), strict=False):
        for percentile in (f"p{p}" for p in PERCENTILES):
            values = [s[name].get(percentile, math.nan) * 1e3 for s in summaries]
            axis.plot(ticks, values, marker="o", label=percentile)
        axis.set(title=label, ylabel="ms", yscale="log")
        axis.legend()
    axes[-1].plot(ticks, [s["output_tokens_per_s"] for s in summaries], marker="o", color="black")
    axes[-1].set(title="throughput", ylabel="output tokens/s", ylim=(0, None))
    for axis in axes:
        axis.set_xlabel("requests/s")
        axis.set_xticks(ticks, labels)
        axis.grid(alpha=0.3)
    figure.suptitle(title)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def main(argv: list[str] | None = None) -> None:
    """Measures every rate, prints the table, writes JSON and the plot."""
    args = parse_args(argv)
    if args.plot is not None and importlib.util.find_spec("matplotlib") is None:
        sys.exit('--plot needs matplotlib: pip install "mlc_native[bench]"')
    with model_folder(args) as path:
        summaries = asyncio.run(measure(args, path))
    title = describe_model(args)
    print_table(summaries, title)
    if args.json is not None:
        settings = {k: str(v) for k, v in vars(args).items() if v is not None}
        out = provenance() | {"settings": settings, "runs": summaries}
        args.json.write_text(json.dumps(out, indent=1) + "\n")
    if args.plot is not None:
        plot(summaries, title, args.plot)


if __name__ == "__main__":
    main()
