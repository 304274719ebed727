"""Measures an engine on a GPU, together with the machine's limit and `transformers`.

    python bench/gpu.py --device cuda:0 --json out.json            # everything
    python bench/gpu.py decode-0.6b host --device cuda:0           # selected rows
    python bench/gpu.py --tiny --device cpu                        # a test run without a GPU

    limits       bandwidth of a large copy, peak of a large product of bfloat16 matrices
    decode-SHAPE tokens/s of one sequence, 8b also in q4; 8b also prefill of 8,192 tokens
    attention    torch's attention on the shape that bench/cuda/kernels.cc times, for comparison
    serving      256 requests at once, with 100 to 1,024 tokens in and out (uniform, seed 0)
    host         64 sequences: the host's part of a step, and how long the device waits for it
    trace        where the device's time goes, by kernel: one sequence, and the requests of serving
    first-token  seconds from the start of a process, with the files in the page cache

Checkpoints with random weights are made in TMPDIR. The limits are always measured first. A row that
fails does not stop the others, and --json has what has been measured so far. --sides ours leaves
`transformers` out, --sides others measures nothing else. tools/gpu_report.py compares the figures
with their targets. A share is the least time that the machine needs (model_limit.py) divided by the
measured time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import first_token
import serving
import torch
from common import add_model_arguments, make_checkpoint, random_prompts, torch_device
from device_trace import DeviceTrace, device_trace
from load_generator import Arrival, Lengths, LoadGenerator, Workload, draw_arrivals
from machine import provenance
from model_limit import BF16, Decoder, Machine, Step
from sides import Ours, Row, Side, Transformers, measure
from transformers.utils import logging as transformers_logging

Figures = dict[str, dict[str, Any]]  # by name, then by side
Parts = Iterator[Figures]  # as they are measured


@dataclass(frozen=True)
class Sizes:
    """The amount of work that is measured."""

    shapes: dict[str, str]
    new_tokens: int = 256
    prefill: int = 8192
    requests: int = 256
    lengths: Lengths = Lengths(100, 1024)  # noqa: RUF009
    batch: int = 64
    context: int = 4096
    copy_bytes: int = 1 << 30
    product: int = 8192
    repeats: int = 3


FULL = Sizes({"0.6b": "qwen3-0.6b", "1b": "llama-3.2-1b", "8b": "llama-3.1-8b"})
TINY = Sizes(
    {"0.6b": "tiny-qwen3", "1b": "tiny-llama", "8b": "tiny-llama"},
    new_tokens=4,
    prefill=32,
    requests=4,
    lengths=Lengths(4, 12),
    batch=4,
    context=32,
    copy_bytes=1 << 20,
    product=64,
    repeats=1,
)


class Run:
    """One run of the program: its arguments and the limits of the machine."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.sizes = TINY if args.tiny else FULL
        self.torch_device = torch_device(args)
        self.machine = measure_machine(self.torch_device, self.sizes)

    @contextmanager
    def checkpoint(self, shape: str) -> Iterator[str]:
        """A folder with random bfloat16 weights, as long as the context."""
        with tempfile.TemporaryDirectory() as folder:
            like = self.sizes.shapes[shape]
            yield str(make_checkpoint(like, folder, "bfloat16", device=self.torch_device))

    @property
    def is_ours(self) -> bool:
        """Whether this engine is measured."""
        return self.args.sides != "others"

    @property
    def is_others(self) -> bool:
        """Whether `transformers` and torch are measured."""
        return self.args.sides != "ours"

    def engine_args(self, quantization: str | None = None) -> argparse.Namespace:
        """For an engine in bfloat16 or quantized."""
        return argparse.Namespace(
            **vars(self.args) | {"dtype": "bfloat16", "quantization": quantization}
        )


def config_of(path: str) -> dict[str, Any]:
    """The model's config.json."""
    out: dict[str, Any] = json.loads((Path(path) / "config.json").read_text())
    return out


# ---- The machine ----


def median_seconds(device: str, call: Callable[[], object]) -> float:
    """Seconds per call: the median of 12 rounds of ten calls, without the first two rounds."""
    seconds = []
    for _ in range(12):
        wait_for(device)
        start = time.perf_counter()
        for _ in range(10):
            call()
        wait_for(device)
        seconds.append((time.perf_counter() - start) / 10)
    return statistics.median(seconds[2:])


def wait_for(device: str) -> None:
    """Waits until the device is idle."""
    if device != "cpu":
        torch.cuda.synchronize(device)


def measure_machine(device: str, sizes: Sizes) -> Machine:
    """A random matrix, because products of zeros are faster."""
    source = torch.randint(0, 100, (sizes.copy_bytes // 4,), dtype=torch.int32, device=device)
    target = torch.empty_like(source)
    copy_s = median_seconds(device, lambda: target.copy_(source))
    n = sizes.product
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    product_s = median_seconds(device, lambda: torch.mm(a, b))
    return Machine(2 * sizes.copy_bytes / copy_s, 2 * n**3 / product_s)


# ---- One sequence ----


def one_sequence(run: Run, shape: str, quantizations: list[str | None], prefill: bool) -> Parts:
    """Decode of one sequence and, for the largest shape, prefill of a long prompt."""
    decode = Row(f"decode {shape}", 1, 8, run.sizes.new_tokens)
    rows = [decode, Row(f"prefill {shape}", 1, run.sizes.prefill, 1)] if prefill else [decode]
    with run.checkpoint(shape) as path:
        config = config_of(path)
        sides: list[Side] = []
        for quantization in quantizations if run.is_ours else []:
            name = f"mlc_native {quantization or 'bf16'}"
            ours = Ours(path, run.engine_args(quantization), rows, name)
            decoder = Decoder.of(config, ours.debug("memory_summary")["weights"])
            yield from rates_of(run, ours, rows, config, decoder)
            sides.append(ours)  # stays, since loading the next one takes less than unloading it
        if run.is_others:
            other = Transformers(path, "bfloat16", run.args.threads, run.torch_device)
            yield from rates_of(run, other, rows, config, Decoder.of(config))


def rates_of(
    run: Run, side: Side, rows: list[Row], config: dict[str, Any], decoder: Decoder
) -> Parts:
    """The rows of one side."""
    for row in rows:
        prompts = random_prompts(1, row.prompt_len, config["vocab_size"], seed=0)
        rates = measure([side], row, prompts, run.sizes.repeats)
        yield {row.label: {side.name: rate_figure(run.machine, decoder, row, rates[side.name])}}


def rate_figure(machine: Machine, decoder: Decoder, row: Row, rates: list[float]) -> dict[str, Any]:
    """Tokens/s, and their share of the limit of a step in the middle of the row."""
    if row.new_tokens == 1:
        step = Step(1, row.prompt_len, 0)
    else:
        step = Step(1, 1, row.prompt_len + row.new_tokens // 2)
    rate = statistics.median(rates)
    limit = decoder.step_seconds(machine, step)
    return {"tokens_per_s": rate, "rounds": rates, "share": limit * rate / step.rows}


def torch_attention(run: Run) -> Parts:
    """torch's attention over contiguous keys and values of the 8B shape, in bfloat16."""
    batch, context, heads, kv_heads, dim = run.sizes.batch, run.sizes.context, 32, 8, 128
    device = run.torch_device
    q = torch.randn(batch, heads, 1, dim, device=device, dtype=torch.bfloat16)
    shape = (batch, kv_heads, context, dim)
    k, v = (torch.randn(shape, device=device, dtype=torch.bfloat16) for _ in range(2))
    attend = torch.nn.functional.scaled_dot_product_attention
    seconds = median_seconds(device, lambda: attend(q, k, v, enable_gqa=True))
    limit = run.machine.seconds(2 * k.numel() * BF16, 4.0 * batch * context * heads * dim)
    yield {"attention 8b": {"torch": {"seconds": seconds, "share": limit / seconds}}}


# ---- Many requests ----


def serve(run: Run) -> Parts:
    """Output tokens/s of requests that are all submitted at once."""
    sizes = run.sizes
    workload = Workload(sizes.lengths, sizes.lengths, sizes.requests, None)
    args = run.engine_args()
    args.rates, args.requests, args.duration = [math.inf], sizes.requests, None
    args.prompt_tokens = args.output_tokens = sizes.lengths
    args.max_sequences, args.prefill_chunk = sizes.requests, None
    with run.checkpoint("0.6b") as path:
        config = config_of(path)
        arrivals = draw_arrivals(math.inf, workload, config["vocab_size"], (args.seed, 1))
        requests = [(len(each.prompt), each.max_tokens) for each in arrivals]
        decoder = Decoder.of(config)
        small = replace(decoder, kv_bytes_per_token=decoder.kv_bytes_per_token // 2)
        for name, kv_cache_dtype, limits in (
            ("mlc_native bf16", "auto", decoder),
            ("mlc_native bf16, float8 KV", "float8", small),
        ):
            if not run.is_ours or (kv_cache_dtype == "float8" and args.device == "cpu"):
                continue
            args.kv_cache_dtype = kv_cache_dtype
            ours = asyncio.run(serving.measure(args, path))[0]
            share = limits.requests_seconds(run.machine, requests) / ours["seconds"]
            yield {"serving 0.6b": {name: ours | {"share": share}}}
        if not run.is_others:
            return
        model = Transformers(path, "bfloat16", args.threads, run.torch_device).model
        padded = attempt(lambda: generate_padded(model, arrivals))
        yield {"serving 0.6b": {"transformers generate": padded}}
        if run.torch_device != "cpu":  # where it would take all memory of the host
            continuous = attempt(lambda: generate_continuous(model, arrivals))
            yield {"serving 0.6b": {"transformers continuous": continuous}}


def attempt(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of measuring another library, or the reason why that failed."""
    try:
        return call()
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def generate_padded(model: Any, arrivals: list[Arrival]) -> dict[str, Any]:
    """`generate` of the first 64 requests as one batch, at most 256 tokens each, for its time."""
    some = [replace(each, max_tokens=min(each.max_tokens, 256)) for each in arrivals[:64]]
    longest = max(len(each.prompt) for each in some)
    ids = torch.tensor([[0] * (longest - len(each.prompt)) + each.prompt for each in some])
    mask = torch.tensor(
        [[0] * (longest - len(each.prompt)) + [1] * len(each.prompt) for each in some]
    )
    new_tokens = max(each.max_tokens for each in some)
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            do_sample=False,
            min_new_tokens=new_tokens,
            max_new_tokens=new_tokens,
        ).cpu()
    seconds = time.perf_counter() - start
    tokens = sum(each.max_tokens for each in some)
    return {"output_tokens_per_s": tokens / seconds, "requests": len(some), "seconds": seconds}


def generate_continuous(model: Any, arrivals: list[Arrival]) -> dict[str, Any]:
    """transformers' continuous batching; raises its exception where it cannot run."""
    config = type(model.generation_config)(do_sample=False, eos_token_id=-1, pad_token_id=0)
    with model.continuous_batching_context_manager(generation_config=config) as manager:
        start = time.perf_counter()
        for each in arrivals:
            manager.add_request(each.prompt, max_new_tokens=each.max_tokens, eos_token_id=-1)
        tokens = done = 0
        while done < len(arrivals):
            result = manager.get_result(timeout=1)
            if result is not None and result.is_finished():
                tokens, done = tokens + len(result.generated_tokens), done + 1
            elif result is None and not manager.is_running():
                raise RuntimeError(f"it stopped after {done} of {len(arrivals)} requests")
        seconds = time.perf_counter() - start
    return {"output_tokens_per_s": tokens / seconds, "requests": done, "seconds": seconds}


# ---- The host ----


def host_time(run: Run) -> Parts:
    """A decoding batch: time of a step, the host's part of it, and the idle time of the device."""
    sizes = run.sizes
    args = run.engine_args()
    args.max_sequences, args.prefill_chunk = sizes.batch, None
    args.prompt_tokens = args.output_tokens = Lengths(sizes.new_tokens, sizes.new_tokens)
    workload = Workload(args.prompt_tokens, args.output_tokens, sizes.batch, None)
    with run.checkpoint("0.6b") as path:
        vocab_size = config_of(path)["vocab_size"]
        arrivals = draw_arrivals(math.inf, workload, vocab_size, (args.seed,))
        figure = asyncio.run(profile(args, path, arrivals))
    yield {"host 0.6b": {"mlc_native bf16": figure}}


async def profile(args: argparse.Namespace, path: str, arrivals: list[Arrival]) -> dict[str, Any]:
    """Times of the engine's clock and, in a separate run, of the device."""
    engine = await asyncio.to_thread(serving.start_engine, args, path)
    async with engine:
        generator = LoadGenerator(engine, lambda: None)
        await generator.run(math.inf, arrivals, "warm-up")
        await debug(engine, "profiler_start")
        await generator.run(math.inf, arrivals, "profiled")
        phases = json.loads(await debug(engine, "profiler_stop"))["phases"]
        with device_trace() as trace:
            await generator.run(math.inf, arrivals, "traced")
    steps, step_s = phases["step"]["count"], phases["step"]["sum_s"]
    wait_s = phases.get("collect", {}).get("sum_s", 0.0)
    return {
        "step_s": step_s / steps,
        "host_s": (step_s - wait_s) / steps,
        "device_idle_share": trace.idle_share(),
        "phases": phases,
    }


def trace_kernels(run: Run) -> Parts:
    """The time of the device by kernel: of decode of one sequence, and of many requests."""
    sizes = run.sizes
    workload = Workload(sizes.lengths, sizes.lengths, sizes.requests, None)
    one = Row("trace", 1, 8, sizes.new_tokens // 4)
    args = run.engine_args()
    args.prompt_tokens = args.output_tokens = sizes.lengths
    args.max_sequences, args.prefill_chunk = sizes.requests, None
    with run.checkpoint("0.6b") as path:
        vocab_size = config_of(path)["vocab_size"]
        ours = Ours(path, run.engine_args(), [one])
        prompts = random_prompts(1, one.prompt_len, vocab_size, seed=0)
        ours.generate(prompts, 8)
        with device_trace() as trace:
            ours.generate(prompts, one.new_tokens)
        yield {"trace decode 0.6b": {"mlc_native bf16": trace_figure(trace)}}
        del ours
        arrivals = draw_arrivals(math.inf, workload, vocab_size, (args.seed, 1))
        trace = asyncio.run(trace_requests(args, path, arrivals))
        yield {"trace serving 0.6b": {"mlc_native bf16": trace_figure(trace)}}


async def trace_requests(
    args: argparse.Namespace, path: str, arrivals: list[Arrival]
) -> DeviceTrace:
    """Requests that are all submitted at once, the second time."""
    async with await asyncio.to_thread(serving.start_engine, args, path) as engine:
        generator = LoadGenerator(engine, lambda: None)
        await generator.run(math.inf, arrivals, "warm-up")
        with device_trace() as trace:
            await generator.run(math.inf, arrivals, "traced")
        return trace


def trace_figure(trace: DeviceTrace) -> dict[str, Any]:
    """The figures of a trace, which are printed, too."""
    kernels, span_s = trace.kernels(), trace.span_s()
    for kernel in kernels[:30]:
        print(f"{1e3 * kernel['seconds']:9.3f} ms {kernel['runs']:7d} x {kernel['name']}")
    print(f"{1e3 * span_s:9.3f} ms in all, busy {1e3 * sum(k['seconds'] for k in kernels):.3f} ms")
    return {"span_s": span_s, "idle_share": trace.idle_share(), "kernels": kernels}


async def debug(engine: Any, name: str) -> str:
    """A debug call that does not block the event loop."""
    return await asyncio.to_thread(engine._debug_call_func_on_all_worker, name)


def start_to_first_token(run: Run) -> Parts:
    """Seconds, by side."""
    with run.checkpoint("0.6b") as path:
        for name in first_token.SIDES:
            if not (run.is_ours if name == first_token.OUR_NAME else run.is_others):
                continue
            seconds = first_token.measure(run.args, path, run.sizes.repeats, name)
            figure = {"seconds": statistics.median(seconds), "rounds": seconds}
            yield {"first token 0.6b": {name: figure}}


ROWS: dict[str, Callable[[Run], Parts]] = {
    "limits": lambda _run: iter(()),
    "decode-0.6b": lambda run: one_sequence(run, "0.6b", [None], prefill=False),
    "decode-1b": lambda run: one_sequence(run, "1b", [None], prefill=False),
    "decode-8b": lambda run: one_sequence(run, "8b", [None, "q4"], prefill=True),
    "attention": torch_attention,
    "serving": serve,
    "host": host_time,
    "trace": trace_kernels,
    "first-token": start_to_first_token,
}


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    add_model_arguments(parser)
    parser.add_argument("--tiny", action="store_true", help="tiny shapes, to see that it runs")
    parser.add_argument("--sides", choices=["ours", "others", "both"], default="both")
    parser.add_argument("--json", type=Path, help="write all figures here, also half of them")
    args = parser.parse_args(argv)
    args.rows = args.rows or list(ROWS)
    if unknown := [row for row in args.rows if row not in ROWS]:
        parser.error(f"unknown rows: {', '.join(unknown)}; there are {', '.join(ROWS)}")
    return args


def main(argv: list[str] | None = None) -> int:
    """Measures row by row; 1 when one of them failed."""
    args = parse_args(argv)
    transformers_logging.disable_progress_bar()
    run = Run(args)
    out = provenance() | {"limits": vars(run.machine), "figures": {}, "errors": {}}
    print(f"{run.machine.bytes_per_s / 1e9:.0f} GB/s, {run.machine.operations_per_s / 1e12:.1f} "
          "TFLOP/s", flush=True)  # fmt: skip
    write(out, args.json)
    for row in args.rows:
        try:
            for part in ROWS[row](run):
                for name, sides in part.items():
                    out["figures"].setdefault(name, {}).update(sides)
                write(out, args.json)
        except Exception as error:
            traceback.print_exc()
            out["errors"][row] = f"{type(error).__name__}: {error}"
            write(out, args.json)
    return 1 if out["errors"] else 0


def write(out: dict[str, Any], file: Path | None) -> None:
    """Replaces the file at once: whoever is stopped leaves a whole one."""
    if file is None:
        return
    whole = file.with_suffix(".tmp")
    whole.write_text(json.dumps(out, indent=1) + "\n")
    whole.replace(file)


if __name__ == "__main__":
    sys.exit(main())
