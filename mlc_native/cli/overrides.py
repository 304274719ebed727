"""Engine settings on the command line: a flag for each, and ``--overrides "k=v;k=v"``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Callable
from typing import Any, TypeVar, get_args

from mlc_native import _core
from mlc_native.errors import invalid_config
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.engine import AsyncMLCEngine, MLCEngine
from mlc_native.serve.model_setup import Mode

AnyEngine = TypeVar("AnyEngine", MLCEngine, AsyncMLCEngine)


def parse_assignments(text: str) -> dict[str, str]:
    """``"a=1; b=x"`` as a dict. A value that is JSON may have semicolons.

    Raises InvalidConfig for a piece without "=".
    """
    assignments = {}
    end = -1
    while end < len(text):
        begin = end + 1
        end = _end_of_assignment(text, begin)
        piece = text[begin:end]
        if not piece.strip():
            continue
        name, separator, value = piece.partition("=")
        if not separator or not name.strip():
            raise invalid_config(piece.strip(), f'expected "name=value", got "{piece.strip()}"')
        assignments[name.strip()] = value.strip()
    return assignments


def _end_of_assignment(text: str, begin: int) -> int:
    semicolon = text.find(";", begin)
    semicolon = len(text) if semicolon < 0 else semicolon
    equals = text.find("=", begin, semicolon)
    if equals < 0:
        return semicolon
    value = len(text) - len(text[equals + 1 :].lstrip())
    try:
        _, end = json.JSONDecoder().raw_decode(text, value)
    except (ValueError, RecursionError):
        return semicolon
    end = len(text) - len(text[end:].lstrip())
    return end if text[end : end + 1] in ("", ";") else semicolon


def parse_value(text: str) -> object:
    """A JSON value where it is one (numbers, booleans, null, lists), else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def number(
    kind: type[int] | type[float],
    least: float,
    greatest: float = math.inf,
    *,
    exclusive: bool = False,
) -> Callable[[str], int | float]:
    """The ``type`` of a flag whose value has a range. ``exclusive``: ``least`` is not allowed."""
    name = "an integer" if kind is int else "a number"
    end = "" if greatest == math.inf else f" and at most {greatest:g}"
    text = f"must be {name} {'greater than' if exclusive else 'of at least'} {least:g}{end}"

    def parse(value: str) -> int | float:
        try:
            parsed = kind(value)
        except ValueError:
            parsed = kind(least) - 1
        if not least <= parsed <= greatest or (exclusive and parsed == least):
            raise argparse.ArgumentTypeError(f'{text}, got "{value}"')
        return parsed

    return parse


def engine_config_from_overrides(text: str) -> EngineConfig:
    """An EngineConfig with the given fields. Raises InvalidConfig for a name that is none."""
    known = {field.name for field in dataclasses.fields(EngineConfig)}
    values: dict[str, Any] = {}
    for name, value in parse_assignments(text).items():
        if name not in known:
            raise invalid_config(name, f'"{name}" is no engine setting; known: {sorted(known)}')
        values[name] = parse_value(value)
    return EngineConfig(**values)


_WITHOUT_A_FLAG = ("model", "model_lib", "mode")  # arguments of an engine's constructor
_FLAG_TYPES: dict[str, Any] = {"int": int, "float": float, "str": str}


def _settings_with_a_flag() -> list[dict[str, Any]]:
    return [f for f in _core.describe_engine_fields() if f["name"] not in _WITHOUT_A_FLAG]


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add ``--max-num-sequence`` and so on: a flag for each engine setting."""
    group = parser.add_argument_group("engine settings")
    for setting in _settings_with_a_flag():
        flag = "--" + setting["name"].replace("_", "-")
        text = setting["doc"].replace("%", "%%")
        if setting["type"] == "bool":
            group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        elif setting["type"].startswith("list"):
            group.add_argument(flag, nargs="+", metavar="TEXT", help=text)
        else:
            group.add_argument(
                flag,
                type=_FLAG_TYPES[setting["type"]],
                choices=setting["choices"] or None,
                help=text,
            )


def add_engine_arguments(parser: argparse.ArgumentParser, mode: str) -> None:
    """Adds everything that an engine takes except the model: device, mode, settings."""
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--device", default="auto",
        help='"cpu", "cuda" (the first GPU), "cuda:i", or "auto": a GPU where one is, else the CPU',
    )  # fmt: skip
    group.add_argument("--model-lib", help="plug-in library that creates the model")
    group.add_argument(
        "--mode", default=mode, choices=get_args(Mode),
        help=f"how many sequences and tokens there is room for; default {mode}",
    )  # fmt: skip
    group.add_argument("--overrides", default="", help='engine settings, "name=value;..."')
    add_engine_flags(parser)


def load_engine(
    kind: type[AnyEngine], model: str, args: argparse.Namespace, verbose: bool
) -> AnyEngine:
    """An engine of the command line. ``verbose``: what it is if no flag says it."""
    config = engine_config_from_flags(args)
    if args.verbose is None and "verbose" not in parse_assignments(args.overrides):
        config.verbose = verbose
    return kind(model, args.device, model_lib=args.model_lib, mode=args.mode, engine_config=config)


def engine_config_from_flags(args: argparse.Namespace) -> EngineConfig:
    """The engine settings of the command line: the flags over ``--overrides``."""
    config = engine_config_from_overrides(args.overrides)
    for setting in _settings_with_a_flag():
        value = getattr(args, setting["name"])
        if value is not None:
            setattr(config, setting["name"], value)
    return config
