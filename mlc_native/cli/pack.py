"""``mlc-native pack PATH OUT``: writes the packed weights of a model ahead of time.

OUT is a folder, which ``--weight-cache-dir OUT`` then maps instead of packing. The file fits
processors with the same width of vectors, and the model folder with its times, as a copy that keeps
them has it. The weights are written part by part, so they need not fit into memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from mlc_native import _core
from mlc_native.cli.failure import print_error
from mlc_native.errors import InvalidConfig, LoadError
from mlc_native.serve.config import EngineConfig
from mlc_native.serve.load_report import LoadReport
from mlc_native.support.engine_log import write_log
from mlc_native.support.model_source import resolve_model
from mlc_native.support.quantity import quantity


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``mlc-native pack``."""
    parser.add_argument("path", metavar="PATH", help="model folder, GGUF file, demo or hub id")
    parser.add_argument("out", metavar="OUT", help="folder of packed weights; made if needed")
    parser.add_argument("--quantization", choices=["q8", "q4", "off"], help="as the engine's")
    parser.add_argument("--dtype", default="auto", help="as the engine's")
    parser.add_argument("--num-threads", type=int, help="default: all cores")


def run(args: argparse.Namespace) -> int:
    """Packs. Returns the exit status."""
    begin = time.monotonic()
    report = LoadReport(args.path, verbose=True)
    try:
        config = EngineConfig(
            model=str(resolve_model(args.path)),
            weight_cache_dir=args.out,
            quantization=args.quantization,
            dtype=args.dtype,
            num_threads=args.num_threads or len(os.sched_getaffinity(0)),
        )
        packed = _core.pack_model(config.engine_json(), report, write_log)
    except (InvalidConfig, LoadError, OSError) as error:
        print_error(error)
        return 2
    finally:
        report.close()
    did = "was there already" if packed.was_there else f"{time.monotonic() - begin:.2f} s"
    parameters = quantity(packed.num_parameters, "parameters")
    size = quantity(packed.bytes, "B")
    print(packed.path)
    print(f"{parameters} in {packed.weight_format}, {size}; {did}", file=sys.stderr)
    return 0
