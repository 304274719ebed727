"""Say what a model folder or a GGUF file holds, and whether it loads.

Reads the configuration and the headers of the files, no weights. The exit status is 0 if the
CPU's decoder loads the folder, and 1 if it does not.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from mlc_native.cli.failure import exit_status, print_error
from mlc_native.errors import InvalidConfig, LoadError
from mlc_native.support.inspection import inspect_model
from mlc_native.support.quantity import quantity

_MAX_UNUSED = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native inspect``."""
    parser.add_argument("path", metavar="PATH", help="model folder, GGUF file, demo or hub id")
    parser.add_argument("--quantization", help="as the engine's, such as q4 or q4.8")
    parser.add_argument("--json", action="store_true", help="everything, as a JSON object")


def run(args: argparse.Namespace) -> int:
    """Prints what the folder holds. Returns the exit status."""
    try:
        found = inspect_model(args.path, args.quantization)
    except (InvalidConfig, LoadError) as error:
        print_error(error)
        return exit_status(error)
    print(json.dumps(found, indent=2) if args.json else "\n".join(_lines(found)))
    return 0 if found["loads"] else 1


def _lines(found: dict[str, Any]) -> list[str]:
    loads = "loads on the CPU" if found["loads"] else "does not load"
    lines = [f"{found['path']}: {found['architecture'] or 'no architecture'}, {loads}"]
    lines += [f"  problem: {problem}" for problem in found["problems"]]
    if "files" in found:
        size = quantity(found["file_bytes"], "B")
        count = quantity(found["num_parameters"], "parameters")
        lines.append(
            f"  {count} in {found['num_tensors']:,} tensors, {found['files']} files, {size}"
        )
    if "decoder" in found:
        numbers = (f"{name} {value:,}" for name, value in found["decoder"].items())
        lines.append("  " + ", ".join(numbers))
    if "memory" in found:
        sizes = (f"{name} {quantity(size, 'B')}" for name, size in found["memory"].items())
        lines.append(f"  memory of the weights: {', '.join(sizes)}")
        per_token = quantity(found["kv_bytes_per_token"], "B")
        weights = f"{found['weight_format']}, {found['bits_per_weight']:.2f} bits per weight"
        states = found["recurrent_bytes_per_slot"]
        per_state = f", states of {quantity(states, 'B')}" if states else ""
        lines.append(f"  loaded: {weights}; KV cache {per_token} per token{per_state}")
    lines += _table(found.get("matrices", []))
    unused = found.get("unused", [])
    lines += [f"  not used: {name}" for name in unused[:_MAX_UNUSED]]
    if len(unused) > _MAX_UNUSED:
        lines.append(f"  not used: {len(unused) - _MAX_UNUSED} more")
    return lines


def _table(matrices: list[dict[str, Any]]) -> list[str]:
    rows = [("tensors", "count", "shape", "stored", "in memory")] if matrices else []
    for each in matrices:
        shape = " x ".join(map(str, each["shape"]))
        count = str(each["count"])
        rows.append((each["name"], count, shape, each["stored"], each.get("loads_as", "")))
    widths = [max(len(row[i]) for row in rows) for i in range(5)] if rows else []
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
