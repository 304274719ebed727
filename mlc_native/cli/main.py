"""Entry point of ``mlc-native``: one subcommand per module of this package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mlc_native.cli import chat, serve


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a subcommand and returns the exit status (2 for an error of the caller)."""
    parser = argparse.ArgumentParser(
        prog="mlc-native", description="Large language models inside your process."
    )
    subcommands = parser.add_subparsers(dest="command", required=True)
    chat.add_parser(subcommands)
    serve.add_parser(subcommands)
    args = parser.parse_args(argv)
    return int(args.run(args))


if __name__ == "__main__":
    sys.exit(main())
