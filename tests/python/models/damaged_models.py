"""Model folders that tests damage, and what must name the damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mlc_native._core import LoadError, testing

WEIGHTS = "model.safetensors"
NORM = "model.norm.weight"
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def load_error(path: Path, *parts: str, **options: Any) -> None:
    """Loading raises LoadError and its message contains all `parts`."""
    with pytest.raises(LoadError) as error:
        testing.TestModel(str(path), **options)
    for part in parts:
        assert part in str(error.value)


def edit_config(path: Path, **fields: object) -> None:
    """Set fields of config.json; `...` deletes one."""
    config = json.loads((path / "config.json").read_text()) | fields
    config = {key: value for key, value in config.items() if value is not ...}
    (path / "config.json").write_text(json.dumps(config))
