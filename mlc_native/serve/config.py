"""EngineConfig: how an engine is set up.

Its fields (names, types, defaults, ranges, documentation) are declared in
csrc/config/engine_config.h; here they become a dataclass, and in mlc_native.cli flags.
"""

from __future__ import annotations

import json
from dataclasses import asdict, field, fields, make_dataclass
from functools import reduce
from operator import or_
from typing import Any, Literal

from mlc_native import _core
from mlc_native.errors import invalid_config

# Fields of MLC-LLM's compiler. Accepted with the only values that have a meaning here.
_COMPILER_FIELDS: dict[str, tuple[Any, ...]] = {
    "tensor_parallel_shards": (None, 1),
    "pipeline_parallel_stages": (None, 1),
    "opt": (None, "O0", "O1", "O2", "O3"),
    "kv_state_kind": (None, "kv_cache"),
}
_TYPES: dict[str, Any] = {
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "list[str]": list[str | tuple[str, str]],  # draft models: a model, or with its library
}


def _declared_fields() -> Any:
    """A dataclass of the fields that the engine declares, and of the compiler's."""
    declared: list[tuple[str, Any, Any]] = []
    for entry in _core.describe_engine_fields():
        kind, default = _TYPES[entry["type"]], entry["default"]
        if entry["choices"]:
            kind = reduce(or_, (Literal[choice] for choice in entry["choices"]))
        if default == "" or entry["name"] == "mode":  # the engine's constructor has a mode
            default = None
        value = field(default_factory=list) if isinstance(default, list) else field(default=default)
        declared.append((entry["name"], kind if default is not None else kind | None, value))
    declared += [(name, Any, field(default=None)) for name in _COMPILER_FIELDS]
    return make_dataclass("_EngineFields", declared)


_EngineFields: Any = _declared_fields()


class EngineConfig(_EngineFields):
    """Settings of an engine. ``None`` means: inferred from mode, model and free memory.

    Ranges are checked by the engine before anything is loaded; what is wrong is named in an
    InvalidConfig.
    """

    def asjson(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(json_str: str) -> EngineConfig:
        """The reverse of asjson. Raises InvalidConfig naming a field that does not exist."""
        try:
            values = json.loads(json_str)
        except ValueError as error:
            raise invalid_config("engine_config", f"invalid JSON: {error}") from error
        if not isinstance(values, dict):
            raise invalid_config("engine_config", "an engine config must be a JSON object")
        known = {field.name for field in fields(EngineConfig)}
        for name in values:
            if name not in known:
                raise invalid_config(name, f'the engine config has no field "{name}"')
        return EngineConfig(**values)

    def engine_json(self) -> str:
        """What the C++ engine reads: the fields that are set and that it knows.

        Raises:
            InvalidConfig: a setting of MLC-LLM's compiler that has no meaning here.
        """
        if not isinstance(self.additional_models, list):
            raise invalid_config(
                "additional_models",
                f'"additional_models" must be a list, got {self.additional_models!r}',
            )
        values = asdict(self)
        for name, allowed in _COMPILER_FIELDS.items():
            value = values.pop(name)
            if value not in allowed:
                raise invalid_config(
                    name, f'"{name}" must be one of {list(allowed)}, got {value!r}'
                )
        values["additional_models"] = [
            model[0] if isinstance(model, tuple) else model for model in self.additional_models
        ]
        set_values = {name: value for name, value in values.items() if value is not None}
        try:
            return json.dumps(set_values)
        except TypeError as error:
            raise invalid_config("engine_config", f"a setting has a wrong type: {error}") from error


assert EngineConfig.__doc__ is not None
EngineConfig.__doc__ += "\n    Attributes:\n" + "".join(
    f"        {entry['name']}: {entry['doc']}\n" for entry in _core.describe_engine_fields()
)
