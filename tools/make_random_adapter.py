"""Adapters as PEFT writes them, for any checkpoint. Neither PEFT nor torch is needed.

    python tools/make_random_adapter.py --checkpoint /tmp/qwen3 --rank 16 --out /tmp/adapter

The folder holds adapter_config.json and adapter_model.safetensors with random numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

Shape = tuple[int, int]
Tensors = dict[str, np.ndarray]

PREFIX = "base_model.model."
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
_LAYER = re.compile(r"\.layers\.(\d+)\.")


def linear_modules(checkpoint: Path, targets: Sequence[str] | None = None) -> dict[str, Shape]:
    """The shapes of the matrices of modules whose last names are ``targets``; None: of all."""
    modules: dict[str, Shape] = {}
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(file, framework="numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118  # it is no dict
                module, _, kind = name.rpartition(".")
                shape = tensors.get_slice(name).get_shape()
                is_target = targets is None or module.split(".")[-1] in targets
                if kind == "weight" and is_target and len(shape) == 2:
                    modules[module] = (shape[0], shape[1])
    return modules


def layer_of(module: str) -> int | None:
    """The layer of a module."""
    found = _LAYER.search(module)
    return None if found is None else int(found[1])


def pattern_value(patterns: Mapping[str, float], module: str, default: float) -> float:
    """What a ``rank_pattern`` or ``alpha_pattern`` says of a module."""
    for pattern, value in patterns.items():
        if re.fullmatch(rf"(.*\.)?{pattern}", module):
            return value
    return default


def scale_of(config: Mapping[str, Any], module: str) -> float:
    """The factor of B times A."""
    rank = pattern_value(config.get("rank_pattern") or {}, module, config["r"])
    alpha = pattern_value(config.get("alpha_pattern") or {}, module, config["lora_alpha"])
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def write_adapter(
    folder: Path,
    checkpoint: Path,
    *,
    seed: int = 0,
    targets: Sequence[str] = (*ATTENTION, *MLP),
    strength: float = 0.6,
    dtype: type[np.floating[Any]] = np.float32,
    keeps: Callable[[str], bool] = lambda module: True,
    **settings: Any,
) -> Path:
    """Writes a random adapter. The update of a weight is about ``strength`` times as large as a
    random weight. Of the modules that the targets name it has those that ``keeps`` wants.

    ``settings`` are fields of adapter_config.json: by default, r is 8 and lora_alpha 16.
    """
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": checkpoint.name,
        "r": 8,
        "lora_alpha": 16,
        "lora_dropout": 0.0,
        "target_modules": list(targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "rank_pattern": {},
        "alpha_pattern": {},
        "layers_to_transform": None,
        **settings,
    }
    rng = np.random.default_rng(seed)
    tensors: Tensors = {}
    layers = config["layers_to_transform"]
    for module, (rows, columns) in linear_modules(checkpoint, targets).items():
        if not keeps(module) or (layers is not None and layer_of(module) not in layers):
            continue
        if config["fan_in_fan_out"]:  # the checkpoint has [in, out]
            rows, columns = columns, rows
        rank = int(pattern_value(config["rank_pattern"], module, config["r"]))
        gain = strength / (abs(scale_of(config, module)) * math.sqrt(rank))
        a = rng.standard_normal((rank, columns)) / math.sqrt(columns)
        b = rng.standard_normal((rows, rank)) * gain
        tensors[f"{PREFIX}{module}.lora_A.weight"] = a.astype(dtype)
        tensors[f"{PREFIX}{module}.lora_B.weight"] = b.astype(dtype)
    assert tensors, f"{checkpoint} has none of {targets}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    return folder


def main() -> None:
    """Writes one adapter."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", nargs="+", default=[*ATTENTION, *MLP])
    args = parser.parse_args()
    write_adapter(
        args.out,
        args.checkpoint,
        seed=args.seed,
        targets=args.targets,
        r=args.rank,
        lora_alpha=2 * args.rank,
    )


if __name__ == "__main__":
    main()
