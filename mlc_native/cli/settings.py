"""The generation settings of a chat, as ``/set`` and the flags of the command line change them."""

from __future__ import annotations

import types
import typing
from collections.abc import Callable
from typing import Any, Literal

from mlc_native.cli.overrides import parse_assignments, parse_value
from mlc_native.errors import invalid_config
from mlc_native.protocol.generation_config import SamplingOptions

DEFAULT = "default"
# One answer per turn, so no "n".
SETTINGS = (
    *(name for name in SamplingOptions.model_fields if name != "n"),
    "stop",
    "chat_template_kwargs",
)

Arguments = dict[str, Any]


class ChatSettings:
    """Generation settings of a chat. What is not set is the model's default.

    Args:
        check: raises an error for keyword arguments of ``create`` that the engine refuses.
    """

    def __init__(self, check: Callable[[Arguments], None] = lambda arguments: None) -> None:
        self.values: dict[str, Any] = {}
        self._check = check

    def update(self, text: str) -> None:
        """Applies ``"name=value;..."`` or ``"name value"``; ``"default"`` forgets all settings.

        Nothing changes if a piece is wrong.

        Raises:
            InvalidConfig: there is no such setting, or the text is not understood.
            InvalidRequest: the engine refuses a value.
        """
        name, _, rest = text.strip().partition(" ")
        if text.strip() == DEFAULT:
            self.values = {}
        elif "=" not in name and rest.strip() and not rest.lstrip().startswith("="):
            self.assign({name: rest.strip()})
        else:
            self.assign(parse_assignments(text))

    def assign(self, texts: dict[str, str]) -> None:
        """Applies values that are given as texts, as ``update`` does."""
        if not texts:
            return
        changes = {name: self._parse(name, value) for name, value in texts.items()}
        values = {n: v for n, v in {**self.values, **changes}.items() if v is not None}
        self._check(values)
        self.values = values

    def arguments(self) -> Arguments:
        """Keyword arguments of ``chat.completions.create``."""
        return dict(self.values)

    def _parse(self, name: str, value: str) -> object:
        if name not in SETTINGS:
            raise invalid_config(name, f'no setting "{name}"; known: {", ".join(SETTINGS)}')
        if value == DEFAULT:
            return None
        if name == "stop" and value[:1] != "[" and value != "null":
            return value.split(",")  # as in MLC-LLM
        return parse_value(value)

    def __str__(self) -> str:
        shown = "; ".join(f"{name}={value}" for name, value in self.values.items())
        return shown or "all settings have the model's defaults"


def choices(name: str) -> list[str]:
    """The values of a setting that can be listed, for completion; "default" is one of them."""
    values: list[str] = []
    field = SamplingOptions.model_fields.get(name)
    annotation = None if field is None else field.annotation
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    for kind in typing.get_args(annotation) if is_union else (annotation,):
        if kind is bool:
            values += ["true", "false"]
        elif typing.get_origin(kind) is Literal:
            values += [str(value) for value in typing.get_args(kind)]
    return [*values, DEFAULT] if name in SETTINGS else []
