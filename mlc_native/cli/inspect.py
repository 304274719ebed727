"""Show what a model folder holds and what it would take to load it.

Reads config.json and the headers of the files of weights, not the weights. The exit status is 1 if
the model cannot be loaded; what is wrong with it is shown.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from typing import Any

from mlc_native.cli.display import show_controls
from mlc_native.cli.failure import print_error
from mlc_native.errors import MLCNativeError
from mlc_native.serve.inspection import inspect_model
from mlc_native.serve.load_report import quantity

_MAX_NAMES = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native inspect``."""
    parser.add_argument("model", metavar="PATH", help="model folder, hub id or demo")
    parser.add_argument("--json", action="store_true", help="as JSON (mlc_native.inspect_model)")


def run(args: argparse.Namespace) -> int:
    """Shows the folder. Exit status 0 if the model can be loaded, else 1."""
    try:
        report = inspect_model(args.model)
    except MLCNativeError as error:
        print_error(error)
        return 1
    if args.json:
        print(json.dumps(report, indent=2))
    else:
        print("\n".join(show_controls(line) for line in _lines(report)))
    return 1 if report["errors"] else 0


def _lines(report: dict[str, Any]) -> Iterable[str]:
    yield report["path"]
    for name, text in _facts(report):
        yield f"  {name:<15} {text}"
    if report["parts"]:
        yield ""
        yield from _table(report)
    for error in report["errors"]:
        yield f"error: {error['message']}"
    yield "" if report["errors"] else "It can be loaded."


def _facts(report: dict[str, Any]) -> Iterable[tuple[str, str]]:
    if report["architecture"] is not None:
        yield (
            "architecture",
            f"{report['architecture']}, {report['num_layers']} layers, hidden size "
            f"{report['hidden_size']}, {report['num_heads']} heads of {report['head_dim']} "
            f"({report['num_kv_heads']} of keys and values)",
        )
        yield (
            "limits",
            f"{report['context_window_size']} tokens, vocabulary of {report['vocab_size']}",
        )
    stored = report["stored"]
    parameters = report["num_parameters"]
    of_model = "" if parameters is None else f", {quantity(parameters, 'parameters')}"
    yield (
        "on disk",
        f"{quantity(stored['bytes'], 'B')} in {stored['files']} files, {stored['tensors']} "
        f"tensors{of_model}",
    )
    for name, sizes in (("weights", "weight_bytes"), ("KV per token", "kv_bytes_per_token")):
        if report[sizes]:
            text = (f"{quantity(size, 'B')} ({key})" for key, size in report[sizes].items())
            yield name, ", ".join(text)
    yield "tokenizer", "tokenizer.json" if report["has_tokenizer"] else "none: token ids only"
    yield "chat template", "yes" if report["has_chat_template"] else "none"
    unused = report["unused_tensors"]
    if unused:
        more = f" and {len(unused) - _MAX_NAMES} more" if len(unused) > _MAX_NAMES else ""
        yield "not used", ", ".join(unused[:_MAX_NAMES]) + more


def _table(report: dict[str, Any]) -> Iterable[str]:
    settings = list(report["weight_bytes"])
    rows: list[Sequence[str]] = [("part", "tensors", "parameters", "stored as", "size", *settings)]
    for part in report["parts"]:
        rows.append(
            (
                part["kind"],
                str(part["tensors"]),
                quantity(part["parameters"], ""),
                ", ".join(part["stored_as"]),
                quantity(part["stored_bytes"], "B"),
                *(part["loads_as"][setting] for setting in settings),
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))
        yield f"  {line.rstrip()}"
