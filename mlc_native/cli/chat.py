"""Talk to a model in the terminal.

Answers are shown as they grow. Ctrl-C stops an answer; at the prompt it clears the line. In a pipe,
and with --prompt, only answers go to stdout; one line, or a block in three double quotes, is one
turn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from mlc_native.cli.commands import NO_USAGE, Chat, Leave, run_command
from mlc_native.cli.display import Display, PipeDisplay, showing
from mlc_native.cli.failure import error_text, exit_status
from mlc_native.cli.overrides import add_engine_arguments, load_engine
from mlc_native.cli.prompt import (
    PipeReader,
    Reader,
    history_file,
    is_terminal,
    make_reader,
    unquote,
)
from mlc_native.cli.remote import RemoteEngine, api_key
from mlc_native.cli.session import COMPLETION_MAX_TOKENS, ChatSession
from mlc_native.errors import (
    EngineRequestError,
    InvalidConfig,
    InvalidRequest,
    LoadError,
    invalid_config,
)
from mlc_native.serve.engine import MLCEngine

FLAGS = ("temperature", "max_tokens", "seed", "adapter")  # settings with a flag of their own
_ERRORS = (InvalidRequest, InvalidConfig, EngineRequestError, LoadError, ValueError, OSError)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native chat``."""
    parser.add_argument(
        "model",
        nargs="?",
        help='model folder or hub id; default "demo". With --url: one of the server\'s models',
    )
    parser.add_argument("--model", dest="named_model", metavar="MODEL", help="the same as MODEL")
    _add_server_flags(parser)
    group = parser.add_argument_group("turns and answers")
    group.add_argument(
        "--prompt", action="append", help="a turn to run instead of reading input; repeatable"
    )
    group.add_argument("--system", metavar="TEXT", help="the system prompt")
    for name in FLAGS:
        group.add_argument(
            "--" + name.replace("_", "-"), metavar="X", help=f"the setting {name} of the answers"
        )
    group.add_argument(
        "--template-args", metavar="JSON", help="an object of variables for the chat template"
    )
    group.add_argument("--set", default="", help='further settings, "name=value;..."')
    group = parser.add_argument_group("display")
    group.add_argument("--stats", action="store_true", help="tokens and speed after each answer")
    group.add_argument(
        "--markdown",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="show answers as Markdown on a terminal",
    )
    group.add_argument(
        "--history",
        action=argparse.BooleanOptionalAction,
        default=True,
        help=f"keep typed turns in {_shown(history_file())}".replace("%", "%%"),
    )
    group.add_argument("--echo", action="store_true", help="print each turn before its answer")
    add_engine_arguments(parser, mode="interactive")


def _add_server_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("a model on a server")
    group.add_argument(
        "--url", help="chat over HTTP with a server that has OpenAI's interface: http://host:port"
    )
    group.add_argument(
        "--api-key", metavar="KEY", help="for the server; better in $MLC_NATIVE_API_KEY"
    )


def _shown(path: Path) -> str:
    return str(path).replace(str(Path.home()), "~", 1)


def run(args: argparse.Namespace) -> int:
    """Runs the chat. Exit status 0, 1 if the model or a turn failed, 2 if a setting is wrong."""
    interactive = is_terminal() and not args.prompt
    display = make_display(interactive, args.markdown)
    try:
        with _open_engine(args, verbose=interactive) as engine:
            loop = ChatLoop(ChatSession(engine), display, args.stats, interactive)
            loop.apply(args)
            if args.prompt:
                loop.run(_Prompts(args.prompt), args.echo)
            elif interactive:
                display.notice("/help lists the commands")
                loop.run(make_reader(display.notice, history_file() if args.history else None))
            else:
                loop.run(PipeReader(sys.stdin), args.echo)
    except BrokenPipeError:
        raise
    except _ERRORS as error:
        display.error(error_text(error))
        return exit_status(error)
    return 1 if isinstance(display, PipeDisplay) and display.failed else 0


def _open_engine(args: argparse.Namespace, verbose: bool) -> MLCEngine | RemoteEngine:
    model = args.model or args.named_model
    if args.url is not None:
        return RemoteEngine(args.url, model, api_key(args.api_key))
    return load_engine(MLCEngine, model or "demo", args, verbose=verbose)


def make_display(interactive: bool, markdown: bool = True) -> Display:
    """Where a chat is shown: a terminal, or the two outputs of a program in a pipe."""
    if not interactive:
        return PipeDisplay()
    from rich.console import Console

    from mlc_native.cli.terminal_display import TerminalDisplay

    console = Console(file=sys.stdout)
    return TerminalDisplay(console, markdown and not console.is_dumb_terminal)


class _Prompts:
    """Reads the turns of the command line."""

    def __init__(self, turns: list[str]) -> None:
        self._turns: Iterator[str] = iter(turns)

    def read(self) -> str:
        """The next turn."""
        for turn in self._turns:
            return turn
        raise EOFError


class ChatLoop:
    """Reads turns and commands, and shows what becomes of them."""

    def __init__(
        self, session: ChatSession, display: Display, stats: bool, interactive: bool
    ) -> None:
        self._session = session
        self._display = display
        self._stats = stats
        self._interactive = interactive
        self.chat = Chat(session, display, self.turn)

    def apply(self, args: argparse.Namespace) -> None:
        """Applies the settings of the command line. Raises InvalidConfig."""
        try:
            self._apply(args)
        except InvalidRequest as error:
            raise invalid_config(error.field or "set", str(error)) from None

    def _apply(self, args: argparse.Namespace) -> None:
        if self._session.completes:
            self._display.notice(
                "this model has no chat template: it continues your text, by at most "
                f"{COMPLETION_MAX_TOKENS} tokens (/set max_tokens)"
            )
            self._display.markdown = False
        self._session.settings.update(args.set)
        texts = {name: value for name in FLAGS if (value := getattr(args, name)) is not None}
        if args.template_args is not None:
            texts["chat_template_kwargs"] = args.template_args
        self._session.settings.assign(texts)
        if args.system is not None:
            self._session.set_system(args.system)

    def run(self, reader: Reader, echo: bool = False) -> None:
        """Handles turns until the end of the input, /exit, or, in a pipe, Ctrl-C."""
        while True:
            answering = False
            try:
                typed = reader.read()
                answering = True
                if echo:
                    print(f"> {typed}", flush=True)
                self._handle(*unquote(typed))
            except (EOFError, Leave):
                return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                stopped, hint = "[stopped]", "Ctrl-D or /exit ends the chat"
                self._display.notice(stopped if answering else hint)

    def _handle(self, text: str, quoted: bool) -> None:
        """Handles one turn or command. What goes wrong is shown and does not end the chat."""
        try:
            if text.startswith("/") and not quoted:
                run_command(self.chat, text)
            elif text:
                self.turn(text)
        except BrokenPipeError:
            raise
        except _ERRORS as error:
            self._display.error(error_text(error))

    def turn(self, text: str) -> None:
        """Shows the answer to a turn. Raises the errors of ``create``."""
        with closing(self._session.answer(text)) as pieces:
            self._show(pieces)
        if self._session.finish_reason == "length":
            self._display.notice("[the answer reached its greatest length]")
        if self._stats:
            self._display.notice(self._speed())

    def _show(self, pieces: Iterator[tuple[str, str]]) -> None:
        """Shows an answer, and the reasoning that leads to it."""
        current = next(pieces, None)
        while current is not None:
            kind, piece = current
            if kind == "notice":
                self._display.notice(piece)
                current = next(pieces, None)
                continue
            answer = self._display.answer() if kind == "content" else self._display.reasoning()
            with showing(answer):
                while current is not None and current[0] == kind:
                    answer.add(current[1])
                    current = next(pieces, None)

    def _speed(self) -> str:
        usage = self._session.last_usage
        if usage is None:
            return NO_USAGE
        extra = usage.extra or {}
        guesses = ""
        if "draft_tokens" in extra:
            guesses = f"; {extra['accepted_draft_tokens']} of {extra['draft_tokens']} guesses right"
        return (
            f"[{usage.prompt_tokens} + {usage.completion_tokens} tokens; first token after "
            f"{extra.get('ttft_s', 0):.3f} s, then {extra.get('decode_tokens_per_s', 0):.1f} "
            f"tokens per second{guesses}]"
        )
