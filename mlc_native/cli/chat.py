"""``mlc-native chat MODEL``: talk to a model in the terminal.

Answers are streamed. Ctrl-C while an answer runs aborts that answer; at the prompt it (or Ctrl-D)
ends the program. Works with piped input: one line, one turn.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rich.console import Console

from mlc_native.cli.overrides import engine_config_from_overrides, parse_assignments, parse_value
from mlc_native.errors import (
    EngineRequestError,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    invalid_config,
)
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.engine import MLCEngine

HELP = """\
/help               this text
/exit               end (also Ctrl-D)
/stats              tokens and speed of the last answer
/metrics            the engine's metrics
/reset              forget the conversation
/set                show the settings
/set name=value;... change settings: temperature, top_p, top_k, min_p, frequency_penalty,
                    presence_penalty, repetition_penalty, max_tokens, seed, stop (text or JSON
                    list), response_format (JSON, as {"type": "json_object"})
"""


@dataclass
class ChatSettings:
    """Generation settings of a chat; None leaves the model's default."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    response_format: dict[str, Any] | None = None

    # Fields that are no parameters of chat.completions.create travel in its extra_body.
    EXTRA = ("top_k", "min_p", "repetition_penalty")

    def update(self, text: str) -> None:
        """Apply ``"name=value;..."``; nothing changes when any piece is wrong (InvalidConfig)."""
        known = {f.name for f in fields(self)}
        values = {}
        for name, value in parse_assignments(text).items():
            if name not in known:
                raise invalid_config(name, f'no setting "{name}"; known: {sorted(known)}')
            values[name] = value if name == "stop" and value[:1] != "[" else parse_value(value)
        for name, parsed in values.items():
            setattr(self, name, parsed)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``chat.completions.create``."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        extra = {name: values.pop(name) for name in self.EXTRA if name in values}
        if extra:
            values["extra_body"] = extra
        return values


@dataclass
class ChatSession:
    """A conversation: its history, its settings, and the engine that answers."""

    engine: MLCEngine
    console: Console
    settings: ChatSettings = field(default_factory=ChatSettings)
    messages: list[dict[str, str]] = field(default_factory=list)
    last_usage: Any = None

    def handle(self, line: str) -> bool:
        """One line of input, a command or a turn. False when the session is over."""
        line = line.strip()
        if not line:
            return True
        command, _, argument = line.partition(" ")
        if command == "/exit":
            return False
        try:
            self._dispatch(command, argument, line)
        except (InvalidRequest, InvalidConfig, EngineRequestError, ValueError) as error:
            self._say(f"error: {error}")
        return True

    def _dispatch(self, command: str, argument: str, line: str) -> None:
        if command == "/help":
            self._say(HELP)
        elif command == "/stats":
            self._say(self._stats())
        elif command == "/metrics":
            self._say(json.dumps(self.engine.metrics().metrics, indent=2))
        elif command == "/reset":
            self.messages.clear()
            self._say("conversation forgotten")
        elif command == "/set":
            self.settings.update(argument)
            self._say("; ".join(f"{k}={v}" for k, v in asdict(self.settings).items()))
        elif command.startswith("/"):
            self._say(f"no command {command}; /help lists them")
        else:
            self._turn(line)

    def _turn(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        answer = ""
        try:
            answer = self._answer()
        finally:
            if answer:
                self.messages.append({"role": "assistant", "content": answer})
            else:
                self.messages.pop()

    def _answer(self) -> str:
        """Stream one answer. A history that has grown too long loses its oldest exchange."""
        while True:
            try:
                return self._stream()
            except InvalidRequest:
                exchanges = [i for i, m in enumerate(self.messages) if m["role"] == "user"]
                if len(exchanges) < 2:
                    raise
                del self.messages[exchanges[0] : exchanges[1]]
                self._say("(the oldest exchange was forgotten: the conversation is too long)")

    def _stream(self) -> str:
        pieces: list[str] = []
        stream = self.engine.chat.completions.create(
            messages=self.messages,
            stream=True,
            stream_options={"include_usage": True},
            **self.settings.arguments(),
        )
        try:
            for chunk in stream:
                if chunk.usage is not None:
                    self.last_usage = chunk.usage
                for choice in chunk.choices:
                    content = choice.delta.content
                    if isinstance(content, str) and content:
                        pieces.append(content)
                        self._write(content)
        except KeyboardInterrupt:
            self._write(" [aborted]")
        finally:
            stream.close()  # aborts the request when it still runs
            self._write("\n")
        return "".join(pieces)

    def _stats(self) -> str:
        if self.last_usage is None:
            return "no answer yet"
        usage = self.last_usage
        lines = [f"prompt {usage.prompt_tokens} tokens, answer {usage.completion_tokens} tokens"]
        lines += [f"{name}: {value:.4g}" for name, value in (usage.extra or {}).items()]
        return "\n".join(lines)

    def _say(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _write(self, text: str) -> None:
        self.console.print(text, end="", markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()


def read_lines(console: Console, interactive: bool) -> Any:
    """Yields lines of input until the end, with a prompt in front of typed ones."""
    while True:
        try:
            line = console.input("> ") if interactive else sys.stdin.readline()
        except (EOFError, KeyboardInterrupt):
            return
        if not interactive and line == "":
            return
        yield line


def engine_config(args: argparse.Namespace) -> EngineConfig:
    """The engine settings of the command line: the flags over --overrides."""
    config = engine_config_from_overrides(args.overrides)
    for name in ("dtype", "quantization", "weight_cache_dir", "kv_cache_dtype", "num_threads"):
        if getattr(args, name) is not None:
            setattr(config, name, getattr(args, name))
    return config


def run(args: argparse.Namespace) -> int:
    """The subcommand. Exit status 0, or 2 when the model or a setting is wrong."""
    console = Console(file=sys.stdout)
    interactive = sys.stdin.isatty() and not args.prompt
    try:
        engine = MLCEngine(
            args.model,
            args.device,
            model_lib=args.model_lib,
            mode=args.mode,
            engine_config=engine_config(args),
        )
    except (InvalidConfig, LoadError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with engine:
        session = ChatSession(engine, console)
        if args.set:
            try:
                session.settings.update(args.set)
            except InvalidConfig as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
        if interactive:
            console.print("/help lists the commands", markup=False, highlight=False)
        lines = args.prompt or read_lines(console, interactive)
        for line in lines:
            if not interactive:
                console.print(f"> {line.rstrip()}", markup=False, highlight=False, soft_wrap=True)
            if not session.handle(line):
                break
    return 0


def add_parser(subcommands: Any) -> None:
    """Add ``chat`` to the program's subcommands."""
    parser = subcommands.add_parser("chat", help="talk to a model", description=__doc__)
    parser.add_argument(
        "model", nargs="?", default="demo", help='model folder or hub id; default "demo"'
    )
    parser.add_argument(
        "--device", default="auto",
        help='"cpu", "cuda" (the first GPU), "cuda:i", or "auto": a GPU where one is, else the CPU',
    )  # fmt: skip
    parser.add_argument("--model-lib", help="plug-in library that creates the model")
    parser.add_argument("--mode", default="interactive", choices=["local", "interactive", "server"])
    parser.add_argument("--dtype", choices=["auto", "float32", "bfloat16", "float16"])
    parser.add_argument(
        "--quantization", choices=["off", "q8", "q4"],
        help="bits of the matrices; default: as the checkpoint has them",
    )  # fmt: skip
    parser.add_argument("--weight-cache-dir", help="folder of packed weights for the next start")
    parser.add_argument(
        "--kv-cache-dtype",
        choices=["auto", "bfloat16", "float16", "float32", "int8", "float8"],
        help="of the keys and values; int8 on the CPU only, float8 on GPUs only",
    )
    parser.add_argument("--num-threads", type=int, help="default: all cores")
    parser.add_argument("--overrides", default="", help='engine settings, "name=value;..."')
    parser.add_argument("--set", default="", help='chat settings, "name=value;..."')
    parser.add_argument(
        "--prompt", action="append", help="a turn to run instead of reading input; repeatable"
    )
    parser.set_defaults(run=run)
