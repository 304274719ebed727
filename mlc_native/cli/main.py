"""Entry point of ``mlc-native``: one subcommand per module of this package.

Exit status: 0, 1 if something failed, 2 for a wrong command line (also a value that a model or the
engine refuses), 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import mlc_native
from mlc_native.cli.failure import print_error

# Name, module, and what it does. A module is imported when its command is given.
_COMMANDS = (
    ("bench", "mlc_native.cli.bench", "measure a server or an engine under load"),
    ("chat", "mlc_native.cli.chat", "talk to a model"),
    ("generate", "mlc_native.cli.generate", "answer the requests in a file"),
    ("inspect", "mlc_native.cli.inspect_model", "say what a model folder holds, and if it loads"),
    ("pack", "mlc_native.cli.pack", "write the packed weights of a model ahead of time"),
    ("serve", "mlc_native.cli.serve", "serve a model over HTTP, with OpenAI's interface"),
)
INTERRUPTED = 130  # what a shell reports for a program that SIGINT ended


class _ShowVersion(argparse.Action):
    """Looks the version up only if it is asked for."""

    def __init__(self, option_strings: Sequence[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help="show program's version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"{parser.prog} {mlc_native.__version__}")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Knows what a flag of another program may have meant."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self.get_default("run") is not None:  # of a subcommand
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._hint(unknown[0])}")
        return found, unknown

    def _hint(self, flag: str) -> str:
        from mlc_native.support.keywords import meant_name

        known = {known.replace("-", "_") for known in re.findall("--([a-z-]+)", self.format_help())}
        wrong = flag.partition("=")[0]
        meant = meant_name(wrong[2:].replace("-", "_"), known) if wrong[:2] == "--" else None
        return f"; did you mean --{meant.replace('_', '-')}?" if meant else ""


def make_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser of the command line, with the arguments of ``command``."""
    parser = _Parser(prog="mlc-native", description="Large language models inside your process.")
    parser.add_argument("--version", action=_ShowVersion)
    subcommands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module_name, text in _COMMANDS:
        if name != command:
            subcommands.add_parser(name, help=text)
            continue
        module = importlib.import_module(module_name)
        subparser = subcommands.add_parser(
            name,
            help=text,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # "--model X" must not mean --model-lib
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def _open_missing_streams() -> None:
    """A program that was started without a standard stream has an empty one, not None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _write_any_text() -> None:
    """Characters that the encoding of an output lacks are written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: list[str]) -> int:
    try:
        args = make_parser(arguments[0] if arguments else None).parse_args(arguments)
        status = int(args.run(args))
    except SystemExit:  # of the parser, which may have printed its help
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns the exit status."""
    _open_missing_streams()
    _write_any_text()
    try:
        return _run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:  # of our output: its reader has gone, or the disk is full
        if not isinstance(error, BrokenPipeError):
            print_error(error)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
