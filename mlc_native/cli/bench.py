"""Measure a server with OpenAI's interface, or an engine in this process, under load.

With --url, requests go over HTTP; without it, MODEL is loaded and its engine gets the same requests
directly. The figures are throughput, and percentiles of the time to the first text, the time
between chunks, the time per output token, and the whole request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mlc_native.cli.failure import exit_status, print_error, shown_warnings
from mlc_native.cli.load import (
    EngineTarget,
    Fields,
    Schedule,
    ServerTarget,
    Target,
    dataset_prompts,
    is_messages,
    run_load,
    summarize,
    synthetic_prompts,
    token_prompts,
)
from mlc_native.cli.overrides import (
    add_engine_arguments,
    load_engine,
    number,
    parse_assignments,
    parse_value,
)
from mlc_native.cli.remote import api_key
from mlc_native.errors import MLCNativeError, invalid_config
from mlc_native.serve.engine import AsyncMLCEngine

ENDPOINTS = {"completions": "/completions", "chat": "/chat/completions"}
_TIMES = ("ttft_ms", "inter_token_ms", "time_per_output_token_ms", "end_to_end_ms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native bench``."""
    parser.add_argument(
        "model", nargs="?", metavar="MODEL",
        help='model folder, "demo" or hub id. With --url: one of the server\'s models',
    )  # fmt: skip
    group = parser.add_argument_group("server")
    group.add_argument("--url", help="measure this server: http://host:port")
    group.add_argument("--api-key", metavar="KEY", help="better in $MLC_NATIVE_API_KEY")
    group.add_argument(
        "--endpoint", choices=list(ENDPOINTS), help="default: completions; chat for messages"
    )
    _add_load_flags(parser)
    _add_request_flags(parser)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    add_engine_arguments(parser, mode="server")


def _add_load_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("load")
    group.add_argument(
        "--num-requests", type=number(int, 1), default=100, metavar="N", help="default 100"
    )
    group.add_argument(
        "--concurrency", type=number(int, 1), metavar="N",
        help="requests in flight at most; default 16, or no limit with --request-rate",
    )  # fmt: skip
    group.add_argument(
        "--request-rate", type=number(float, 0, exclusive=True), metavar="R",
        help="requests per second, at random times; default: as soon as another one has ended",
    )  # fmt: skip
    group.add_argument(
        "--warmup", type=number(int, 0), default=4, metavar="N",
        help="requests before the measurement; default 4",
    )  # fmt: skip
    group.add_argument("--seed", type=int, default=0, help="of prompts and times; default 0")


def _add_request_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("requests")
    group.add_argument(
        "--prompt-tokens", type=number(int, 1), default=128, metavar="N",
        help="words of a prompt, which are about as many tokens; default 128",
    )  # fmt: skip
    group.add_argument(
        "--output-tokens", type=number(int, 1), default=128, metavar="N",
        help="max_tokens of a request; default 128",
    )  # fmt: skip
    group.add_argument(
        "--token-ids", type=number(int, 1), metavar="V",
        help="prompts are exactly --prompt-tokens random token ids below V instead of words",
    )  # fmt: skip
    group.add_argument(
        "--dataset", type=Path, metavar="FILE",
        help='prompts from a file: lines of JSON with "prompt" or "messages", or ShareGPT\'s file',
    )  # fmt: skip
    group.add_argument(
        "--ignore-eos", action=argparse.BooleanOptionalAction, default=True,
        help="generate --output-tokens in any case; OpenAI's own servers need --no-ignore-eos",
    )  # fmt: skip
    group.add_argument("--set", default="", help='further fields of requests, "name=value;..."')


def run(args: argparse.Namespace) -> int:
    """Measures. Exit status 0, 1 if a request or the whole failed, 2 if an argument is wrong."""
    try:
        prompts = _prompts(args)
        first = next(prompts)  # shows the file's errors before a model is loaded
        endpoint = ENDPOINTS[args.endpoint or _endpoint_of(first)]
        with ExitStack() as stack:
            make_target = _target(args, endpoint, stack)
            stack.enter_context(shown_warnings())
            figures = asyncio.run(_measure(args, make_target, prompts, endpoint))
    except ExceptionGroup as group:  # of the tasks: the first one is the cause
        print_error(group.exceptions[0])
        return exit_status(group.exceptions[0])
    except (MLCNativeError, OSError, ValueError) as error:
        print_error(error)
        return exit_status(error)
    print(json.dumps(figures, indent=2) if args.json else _table(figures))
    for message in figures["errors"]:
        print(f"error: {message}", file=sys.stderr)
    return 1 if figures["failed"] else 0


def _prompts(args: argparse.Namespace) -> Iterator[Any]:
    if args.dataset is not None:
        return dataset_prompts(args.dataset)
    if args.token_ids is not None:
        return token_prompts(args.prompt_tokens, args.token_ids, args.seed)
    return synthetic_prompts(args.prompt_tokens, args.seed)


def _endpoint_of(prompt: Any) -> str:
    return "chat" if is_messages(prompt) else "completions"


def _target(
    args: argparse.Namespace, endpoint: str, stack: ExitStack
) -> Callable[[], ServerTarget | EngineTarget]:
    """A function that makes the target on the event loop."""
    if args.url is not None:
        return lambda: ServerTarget(args.url, endpoint, api_key(args.api_key))
    if args.model is None:
        raise invalid_config("model", "name a model or a server: mlc-native bench --url URL")
    engine = stack.enter_context(load_engine(AsyncMLCEngine, args.model, args, verbose=False))
    return lambda: EngineTarget(engine, endpoint)


async def _measure(
    args: argparse.Namespace,
    make_target: Callable[[], ServerTarget | EngineTarget],
    prompts: Iterator[Any],
    endpoint: str,
) -> dict[str, Any]:
    target = make_target()
    model = args.model
    if model is None and isinstance(target, ServerTarget):
        model = await target.first_model()
    requests = _requests(args, prompts, model, is_chat="chat" in endpoint)
    concurrency = args.concurrency
    if concurrency is None and args.request_rate is None:
        concurrency = 16
    try:
        await _warm_up(target, requests, args.warmup, concurrency)
        schedule = Schedule(args.num_requests, args.request_rate, concurrency, args.seed)
        outcomes, seconds = await run_load(target, requests, schedule)
    finally:
        await target.close()
    return {
        "target": args.url or "engine",
        "model": model,
        "endpoint": endpoint,
        "request_rate": args.request_rate,
        "concurrency": concurrency,
        **summarize(outcomes, seconds),
    }


async def _warm_up(
    target: Target, requests: Iterator[Fields], number: int, concurrency: int | None
) -> None:
    if number:
        await run_load(target, requests, Schedule(number, None, concurrency))


def _requests(
    args: argparse.Namespace, prompts: Iterator[Any], model: str, is_chat: bool
) -> Iterator[Fields]:
    common = {
        "model": model,
        "max_tokens": args.output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **({"ignore_eos": True} if args.ignore_eos else {}),
        **{name: parse_value(text) for name, text in parse_assignments(args.set).items()},
    }
    for prompt in prompts:
        if not is_chat:
            yield {**common, "prompt": prompt}
        elif isinstance(prompt, str):
            yield {**common, "messages": [{"role": "user", "content": prompt}]}
        else:
            yield {**common, "messages": prompt}


def _table(figures: dict[str, Any]) -> str:
    lines = [
        f"{figures['requests']} requests to {figures['target']}, model {figures['model']}, "
        f"{figures['failed']} failed, {figures['seconds']:.2f} s",
        f"{figures['prompt_tokens']} prompt tokens, {figures['completion_tokens']} output tokens",
        f"{figures['requests_per_s']:.2f} requests/s, {figures['output_tokens_per_s']:.1f} output "
        f"tokens/s, {figures['total_tokens_per_s']:.1f} tokens/s in all",
    ]
    rows = [(name, figures[name]) for name in _TIMES if figures[name] is not None]
    if rows:
        heads = list(rows[0][1])
        lines += ["", f"{'':26}" + "".join(f"{head:>10}" for head in heads)]
        lines += [f"{name:26}" + "".join(f"{row[h]:>10.2f}" for h in heads) for name, row in rows]
    return "\n".join(lines)
