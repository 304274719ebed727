"""inspect_model: what a model folder holds and needs, without loading it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mlc_native import _core
from mlc_native.conversation import load_chat_template
from mlc_native.errors import LoadError
from mlc_native.support.model_source import resolve_model


def inspect_model(model: str | Path) -> dict[str, Any]:
    """Returns what a model folder holds and what it would take to load it.

    Reads config.json and the headers of the files of weights, so a folder of 30 GB takes as little
    as a small one. What is wrong with the folder is in the result.

    Args:
        model: as for ``MLCEngine``: a folder, "demo", or a hub id, which is downloaded.

    Returns:
        A dictionary for JSON:

        * ``path``, ``architecture``, ``dtype``, ``num_layers``, ``hidden_size``, ``num_heads``,
          ``num_kv_heads``, ``head_dim``, ``vocab_size``, ``context_window_size`` (tokens),
          ``num_parameters``; None where the folder does not say;
        * ``stored``: ``files``, ``tensors`` and ``bytes`` on disk;
        * ``parts``: for each kind of parameter (``"attention.qkv"``, ``"mlp.down"``, ``"head"``,
          ...) ``tensors``, ``parameters``, ``stored_as`` (type of the file to number of tensors),
          ``stored_bytes`` and ``loads_as`` (setting ``quantization`` to format in memory);
        * ``weight_bytes``: setting ``quantization`` (``"auto"`` is None) to bytes in memory on this
          machine's CPU;
        * ``kv_bytes_per_token``: setting ``kv_cache_dtype`` to bytes;
        * ``unused_tensors``: names of tensors that the model does not use;
        * ``has_tokenizer``, ``has_chat_template``;
        * ``errors``: ``code``, ``field`` and ``message`` of what keeps the folder from being
          loaded; empty if it can be loaded.

    Raises:
        LoadError: there is no such folder, or the download failed.
    """
    folder = resolve_model(model)
    report: dict[str, Any] = json.loads(_core.inspect_model(str(folder)))
    errors = report.pop("errors")
    report["has_tokenizer"] = (folder / "tokenizer.json").is_file()
    try:
        report["has_chat_template"] = load_chat_template(folder) is not None
    except LoadError as error:
        report["has_chat_template"] = True
        errors.append({"code": "load_error", "field": error.field, "message": str(error)})
    return {**report, "errors": errors}
