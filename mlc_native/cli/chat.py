"""``mlc-native chat MODEL``: talk to a model in the terminal.

Answers are streamed. Ctrl-C while an answer runs aborts that answer; at the prompt it (or Ctrl-D)
ends the program. Works with piped input: one line, one turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console

from mlc_native.cli.overrides import (
    add_engine_flags,
    engine_config_from_flags,
    parse_assignments,
    parse_value,
)
from mlc_native.errors import (
    EngineRequestError,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    invalid_config,
)
from mlc_native.protocol.generation_config import SamplingOptions
from mlc_native.protocol.openai_api_protocol import EXTRA_FIELDS
from mlc_native.serve.engine import MLCEngine

# The settings of a chat: one answer per turn, so no "n".
SETTINGS = (*(name for name in SamplingOptions.model_fields if name != "n"), "stop")

HELP = """\
/help               this text
/exit               end (also Ctrl-D)
/stats              tokens and speed of the last answer
/metrics            the engine's metrics
/reset              forget the conversation
/set                show the settings
/set name=value;... change settings; stop is a text or a JSON list, lists and objects (as
                    response_format) are JSON, null leaves the model's default. Settings:
""" + textwrap.fill(", ".join(SETTINGS), 96, initial_indent=" " * 20, subsequent_indent=" " * 20)


class ChatSettings:
    """Generation settings of a chat; what is not set is the model's default."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def update(self, text: str) -> None:
        """Apply ``"name=value;..."``; nothing changes when any piece is wrong (InvalidConfig)."""
        values = {}
        for name, value in parse_assignments(text).items():
            if name not in SETTINGS:
                raise invalid_config(name, f'no setting "{name}"; known: {sorted(SETTINGS)}')
            values[name] = value if name == "stop" and value[:1] != "[" else parse_value(value)
        self.values = {n: v for n, v in {**self.values, **values}.items() if v is not None}

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``chat.completions.create``."""
        extra = {n: v for n, v in self.values.items() if n in EXTRA_FIELDS}
        plain = {n: v for n, v in self.values.items() if n not in EXTRA_FIELDS}
        return {**plain, "extra_body": extra} if extra else plain

    def __str__(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.values.items()) or "no settings"


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
            self._say(str(self.settings))
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
            engine_config=engine_config_from_flags(args),
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
    parser.add_argument("--overrides", default="", help='engine settings, "name=value;..."')
    parser.add_argument("--set", default="", help='chat settings, "name=value;..."')
    parser.add_argument(
        "--prompt", action="append", help="a turn to run instead of reading input; repeatable"
    )
    add_engine_flags(parser)
    parser.set_defaults(run=run)
