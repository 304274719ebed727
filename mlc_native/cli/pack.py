"""Write the packed weights of a model ahead of time.

OUT is a folder. An engine with --weight-cache-dir OUT maps its files instead of packing. A file
fits processors with the same width of vectors, and copies of the model folder that keep the times
of its files. The weights are written part by part, so they need not fit into memory.

With --calibrate FILE, the model computes the text of FILE, and its matrices are rounded for what
they read then. This takes memory for the packed weights and for the activations of up to 8192
tokens. Engines take calibrated weights before others in OUT.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from mlc_native import _core
from mlc_native.cli.failure import exit_status, print_error
from mlc_native.errors import InvalidConfig, LoadError, invalid_config
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.load_report import LoadReport
from mlc_native.support.engine_log import write_log
from mlc_native.support.model_source import resolve_model
from mlc_native.support.quantity import quantity
from mlc_native.tokenizers import Tokenizer

MAX_TEXT_BYTES = 64 << 20  # of a calibration


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native pack``."""
    parser.add_argument("path", metavar="PATH", help="model folder, GGUF file, demo or hub id")
    parser.add_argument("out", metavar="OUT", help="folder of packed weights; made if needed")
    parser.add_argument("--quantization", help="as the engine's, such as q4 or q4.8")
    parser.add_argument("--dtype", default="auto", help="as the engine's")
    parser.add_argument("--num-threads", type=int, help="as the engine's")
    parser.add_argument("--calibrate", metavar="FILE", help="text (UTF-8) to round weights for")
    parser.add_argument(
        "--trust-tokenizer-regexes", action="store_true", help="as the engine's, for --calibrate"
    )


def run(args: argparse.Namespace) -> int:
    """Packs. Returns the exit status."""
    begin = time.monotonic()
    report = LoadReport(args.path, verbose=True)
    try:
        model = str(resolve_model(args.path))
        tokens = None
        if args.calibrate is not None:
            tokenizer = Tokenizer(model, trust_regexes=args.trust_tokenizer_regexes)
            tokens = tokenizer.encode(_read_text(Path(args.calibrate)))
        config = EngineConfig(
            model=model,
            weight_cache_dir=args.out,
            quantization=args.quantization,
            dtype=args.dtype,
            num_threads=args.num_threads or len(os.sched_getaffinity(0)),
        )
        packed = _core.pack_model(config.engine_json(), report, write_log, tokens)
    except (InvalidConfig, LoadError, OSError) as error:
        print_error(error)
        return exit_status(error)
    finally:
        report.close()
    print(packed.path)
    if tokens is not None:
        print(_calibration(packed, len(tokens)), file=sys.stderr)
    did = "was there already" if packed.was_there else f"{time.monotonic() - begin:.2f} s"
    parameters = quantity(packed.num_parameters, "parameters")
    size = quantity(packed.bytes, "B")
    print(f"{parameters} in {packed.weight_format}, {size}; {did}", file=sys.stderr)
    return 0


def _read_text(path: Path) -> str:
    with path.open("rb") as file:
        content = file.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise invalid_config(
            "calibrate", f'"calibrate" must be a file of at most {MAX_TEXT_BYTES} bytes: {path}'
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid_config(
            "calibrate", f'"calibrate" must be a file of UTF-8, got {path}: {error}'
        ) from error


def _calibration(packed: _core.PackedFile, num_tokens: int) -> str:
    used = f"calibrated on {packed.num_calibration_tokens} of {num_tokens} tokens"
    if packed.num_not_reached == 0:
        return used
    return f"{used}; {packed.num_not_reached} matrices that no token reached are rounded without"
