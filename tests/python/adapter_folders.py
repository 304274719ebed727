"""Folders of adapters for tests, and what they do to the weights of a model.

``weight_updates`` is a second reading of such a folder, from PEFT's documentation: what is added to
each weight of the model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from mlc_native.support.model_source import demo_model_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from make_random_adapter import (
    ATTENTION,
    MLP,
    PREFIX,
    Tensors,
    linear_modules,
    scale_of,
    write_adapter,
)

__all__ = [
    "ATTENTION",
    "MLP",
    "PREFIX",
    "edit_config",
    "linear_modules",
    "read_tensors",
    "weight_updates",
    "write_adapter",
    "write_demo_adapters",
    "write_tensors",
]


def write_demo_adapters(root: Path) -> dict[str, Path]:
    """Two adapters of the demo model, "a" and "b", with which it answers otherwise."""
    demo = demo_model_folder()
    return {
        "a": write_adapter(root / "a", demo, seed=1, strength=1.5),
        "b": write_adapter(root / "b", demo, seed=2, strength=1.5, targets=ATTENTION, r=4),
    }


def edit_config(folder: Path, **fields: Any) -> None:
    """Changes fields of adapter_config.json."""
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def read_tensors(folder: Path) -> Tensors:
    """All tensors of an adapter."""
    return dict(load_file(folder / "adapter_model.safetensors"))


def write_tensors(folder: Path, tensors: Tensors) -> None:
    """Replaces all tensors of an adapter."""
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def weight_updates(folder: Path) -> Tensors:
    """What an adapter adds to the weight of each module, in float64."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = read_tensors(folder)
    updates: Tensors = {}
    for name, a in tensors.items():
        module, _, kind = name.removeprefix(PREFIX).partition(".lora_")
        if kind != "A.weight":
            continue
        b = tensors[f"{PREFIX}{module}.lora_B.weight"]
        product = b.astype(np.float64) @ a.astype(np.float64)
        if config["fan_in_fan_out"]:
            product = product.T
        updates[module] = scale_of(config, module) * product
    return updates
