"""inspect_model: what a model folder holds and needs, without loading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlc_native import _core
from mlc_native.support.model_source import resolve_model
from mlc_native.support.regular_file import has_file


def inspect_model(model: str | Path, quantization: str | None = None) -> dict[str, Any]:
    """Returns what a model folder holds, and whether the CPU's decoder loads it.

    Reads config.json and the headers of the files of weights, so a folder of 30 GB takes no longer
    than a small one. What is wrong with the folder is in the result.

    Args:
        model: as for ``MLCEngine``: a folder, "demo", or a hub id, which is downloaded.
        quantization: as for ``MLCEngine``: what ``loads_as``, ``weight_format`` and
          ``bits_per_weight`` are for.

    Returns:
        A dictionary for JSON:

        * ``path``, ``architecture``, ``loads``, ``problems`` (what a load would say);
        * ``files``, ``file_bytes``, ``num_tensors``, ``num_parameters``, unless the weights cannot
          be read;
        * ``decoder``: ``num_layers``, ``hidden_size`` and so on, unless config.json is refused;
        * ``matrices``: ``name`` (with ``*`` for numbers), ``count``, ``shape``, ``stored`` and, if
          the folder loads, ``loads_as`` of each kind of tensor;
        * if the folder loads: ``weight_format``; ``bits_per_weight``, of all parameters in
          memory; ``memory``, the bytes of the weights as they are
          (``auto``), as floats and with each ``quantization``; ``kv_bytes_per_token``;
          ``recurrent_bytes_per_slot``, of the states of layers that have such; ``unused``,
          tensors and files that the model does not use;
        * ``has_tokenizer``.

    Raises:
        LoadError: there is no such model folder, or the download failed.
        InvalidConfig: the quantization does not exist.
    """
    folder = resolve_model(model)
    found: dict[str, Any] = json.loads(_core.inspect_model(str(folder), quantization))
    return {**found, "has_tokenizer": has_file(folder / "tokenizer.json")}
