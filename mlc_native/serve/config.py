"""EngineConfig: how an engine is set up.

Its fields (names, types, defaults, ranges, documentation) are declared in
include/mlc_native/detail/engine_config.h; serve/arguments.py has them as a dataclass and as
keyword arguments, and mlc_native.cli has them as flags.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from mlc_native import _core
from mlc_native.errors import invalid_config, shown
from mlc_native.serve.adapters import adapter_entries
from mlc_native.serve.arguments import EngineFields
from mlc_native.support.keywords import check_keywords, name_hint

# Short names of types, as other engines have them.
_DTYPES = {
    **{"bf16": "bfloat16", "fp16": "float16", "half": "float16"},
    **{"fp32": "float32", "float": "float32"},
}


@dataclass
class EngineConfig(EngineFields):
    """Settings of an engine. ``None`` means: inferred from mode, model and free memory.

    Ranges are checked by the engine before anything is loaded; what is wrong is named in an
    InvalidConfig.
    """

    if not TYPE_CHECKING:  # checkers derive the constructor from the fields

        @wraps(EngineFields.__init__)
        def __init__(self, *args: Any, **settings: Any) -> None:
            check_keywords(type(self).__name__, settings, {field.name for field in fields(self)})
            super().__init__(*args, **settings)

    @staticmethod
    def of(
        config: EngineConfig | Mapping[str, Any] | None, settings: Mapping[str, Any], function: str
    ) -> EngineConfig:
        """Returns a copy of a config with the settings that a function got as keywords.

        A mapping is the fields of a config. What the keywords set takes precedence.

        Raises:
            InvalidConfig: the config is of another type or has a field that does not exist.
            TypeError: a keyword argument does not exist.
        """
        if config is None:
            config = EngineConfig()
        elif isinstance(config, Mapping):
            config = _from_fields(config)
        elif not isinstance(config, EngineConfig):
            raise invalid_config(
                "engine_config",
                f'"engine_config" must be an EngineConfig or a dict, got {shown(config)}',
            )
        known = {field.name for field in fields(EngineConfig)}
        check_keywords(function, settings, known - {"model", "model_lib", "mode"})
        return replace(config, **settings)

    def asjson(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(self._values())

    def _values(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @staticmethod
    def from_json(json_str: str) -> EngineConfig:
        """The reverse of asjson. Raises InvalidConfig naming a field that does not exist."""
        try:
            values = json.loads(json_str)
        except (TypeError, ValueError, RecursionError) as error:
            raise invalid_config("engine_config", f"invalid JSON: {error}") from error
        if not isinstance(values, dict):
            raise invalid_config("engine_config", "an engine config must be a JSON object")
        return _from_fields(values)

    def engine_json(self) -> str:
        """What the C++ engine reads: the fields that are set.

        Raises:
            InvalidConfig: a value is of a type that no setting has, or not valid Unicode.
        """
        values = self._values()
        values["additional_models"] = additional_model_names(self.additional_models)
        values["adapters"] = adapter_entries(self.adapters)
        set_values = {name: value for name, value in values.items() if value is not None}
        for name in {"dtype", "kv_cache_dtype"} & set_values.keys():
            set_values[name] = _dtype_name(name, set_values[name])
        for name, value in set_values.items():
            try:
                set_values[name] = _plain(value)
                json.dumps(set_values[name], ensure_ascii=False).encode()
            except UnicodeEncodeError:  # such as a path whose bytes are no UTF-8
                raise invalid_config(
                    name, f'"{name}" must be valid Unicode, got {shown(value)}'
                ) from None
            except Exception:  # no JSON, or whatever a method of the value raises
                raise invalid_config(name, f'"{name}" cannot be {shown(value)}') from None
        return json.dumps(set_values)


def additional_model_names(models: object) -> list[str]:
    """The names in ``additional_models``, a list or a single one. Raises InvalidConfig."""
    names = [m[0] if isinstance(m, tuple) and m else m for m in _as_list(models)]
    if not all(isinstance(name, str) for name in names):
        raise invalid_config(
            "additional_models",
            f'"additional_models" must be a list of models, got {shown(models)}',
        )
    return names


def path_argument(name: str, value: object) -> str:
    """The text of an argument that is a path or a model's name. Raises InvalidConfig."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str) or not value:
        raise invalid_config(name, f'"{name}" must be a path or a name, got {shown(value)}')
    try:
        os.stat(value)
    except (FileNotFoundError, NotADirectoryError):
        pass  # a name, or an error that says more later
    except (OSError, ValueError) as error:  # too long, not readable, no valid text
        raise invalid_config(name, f'"{name}" cannot be {shown(value)}: {error}') from None
    return value


def device_argument(device: object) -> str:
    """The name of a device, which may be an object that prints as one. Raises InvalidConfig."""
    try:
        name = str(device)
        name.encode()
    except Exception:  # whatever the __str__ of another library raises
        raise invalid_config("device", f'"device" cannot be {shown(device)}') from None
    return name


def _dtype_name(name: str, dtype: object) -> str:
    """The engine's name of a type. ``torch.bfloat16`` prints as "torch.bfloat16"."""
    try:
        text = str(dtype).removeprefix("torch.")
    except Exception:  # whatever the __str__ of another library raises
        raise invalid_config(name, f'"{name}" cannot be {shown(dtype)}') from None
    return _DTYPES.get(text, text)


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _from_fields(values: Mapping[str, Any]) -> EngineConfig:
    known = {field.name for field in fields(EngineConfig)}
    for name in values:
        if name not in known:
            hint = name_hint(name, known)
            raise invalid_config(str(name), f'the engine config has no field "{name}"{hint}')
    return EngineConfig(**values)


def _plain(value: object) -> object:
    """The path or number of another library as Python's own."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


# "python -OO" leaves no text, and Python 3.13 no indentation of it.
EngineConfig.__doc__ = inspect.cleandoc(EngineConfig.__doc__ or "")
EngineConfig.__doc__ += "\n\nAttributes:\n" + "".join(
    f"    {entry['name']}: {entry['doc']}\n" for entry in _core.describe_engine_fields()
)
