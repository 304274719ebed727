"""Measures seconds and peak memory of loading a model in each precision, from the page cache.

    python bench/load.py --like qwen3-0.6b --threads 2

Each row loads the folder `--repeats` times and shows the first load, which may include the cost of
memory that the machine has not used before, and the fastest. `limit` is the time for copying as
many bytes at the speed at which all threads read the file from the page cache. `beyond` is the peak
of the process's memory during a load, less what it had before and less the weights. The cache rows
use `weight_cache_dir`: the first start packs and writes, the second one maps. GPTQ (4 bits,
symmetric, groups of 128) and MLC's q4f16_1 checkpoints are made in numpy, which takes minutes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from mlc_native._core import testing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/python/models"))
from make_random_checkpoint import make_checkpoint
from mlc_folders import make_mlc_folder
from quantized_checkpoints import Format, gptq_config, quantize_checkpoint, read_gptq, write_gptq

GPTQ = Format(write_gptq, read_gptq, gptq_config(4, 128, sym=True), group_size=128, symmetric=True)
BLOCK = 8 << 20


def copy_speed(files: list[Path], threads: int) -> float:
    """Bytes per second of reading files from the page cache into memory of the threads."""
    blocks = [(file, at) for file in files for at in range(0, file.stat().st_size, BLOCK)]

    def read(part: list[tuple[Path, int]]) -> None:
        buffer = bytearray(BLOCK)
        for file, at in part:
            with open(file, "rb", buffering=0) as stream:
                stream.seek(at)
                stream.readinto(buffer)

    best = float("inf")
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(3):
            start = time.perf_counter()
            list(pool.map(read, [blocks[i::threads] for i in range(threads)]))
            best = min(best, time.perf_counter() - start)
    return sum(file.stat().st_size for file in files) / best


def weight_files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.safetensors"), *folder.glob("params_shard_*.bin")])


def memory(name: str) -> int:
    """Bytes that the kernel says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10


def load(folder: Path, threads: int, **options: str) -> tuple[float, int, int]:
    """Seconds, bytes of the weights, and bytes of the peak beyond them."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    start = time.perf_counter()
    model = testing.TestModel(str(folder), num_threads=threads, **options)
    seconds = time.perf_counter() - start
    weights = model.metadata["weight_bytes"]
    return seconds, weights, memory("VmHWM") - before - weights


def quantized_folders(like: str, work: Path) -> Iterator[tuple[str, Path]]:
    """The name and the folder of each row. The folder is removed when the next one is requested."""
    source = make_checkpoint(like, work / "float32", "float32")
    quantize_checkpoint(source, work / "gptq", work / "floats", GPTQ)
    shutil.rmtree(work / "floats")
    yield "gptq 4 bits", work / "gptq"
    shutil.rmtree(work / "gptq")
    make_mlc_folder(source, work / "mlc", work / "floats", "q4f16_1", encode=False)
    yield "q4f16_1", work / "mlc"


def report(name: str, folder: Path, args: argparse.Namespace, **options: str) -> None:
    files = weight_files(folder)
    size = sum(file.stat().st_size for file in files)
    speed = copy_speed(files, args.threads)
    times = [load(folder, args.threads, **options) for _ in range(args.repeats)]
    seconds, weights, _ = min(times)
    beyond = max(each[2] for each in times)
    limit = (size + weights) / speed
    print(f"{name:24} {size / 1e6:8.0f} {weights / 1e6:8.0f} {times[0][0]:8.2f} {seconds:8.2f} "
          f"{limit:8.2f} {beyond / 1e6:9.0f}", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--like", default="qwen3-0.6b", help="of tools/make_random_checkpoint.py")
    parser.add_argument("--path", type=Path, help="a folder of floats to use in its place")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quantized", action="store_true", help="also make quantized folders")
    args = parser.parse_args()
    columns = ("file MB", "MB", "first s", "best s", "limit s", "beyond MB")
    print(f"{'':24} " + " ".join(f"{name:>{max(len(name), 8)}}" for name in columns))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        floats = args.path or make_checkpoint(args.like, work / "bfloat16", "bfloat16")
        for options in ({}, {"dtype": "float32"}, {"quantization": "q8"}, {"quantization": "q4"}):
            report(json.dumps(options), floats, args, **options)
        for options in ({}, {"quantization": "q4"}):
            cache = str(work / "cache")
            starts = [
                load(floats, args.threads, weight_cache_dir=cache, **options) for _ in range(2)
            ]
            (first, _, packed), (second, _, mapped) = starts
            row = "cache " + json.dumps(options)
            print(f"{row:24} first {first:.2f} s, {packed / 1e6:.0f} MB beyond the weights; "
                  f"second {second:.3f} s, {mapped / 1e6:.0f} MB")  # fmt: skip
            shutil.rmtree(cache)
        if args.quantized:
            for row, folder in quantized_folders(args.like, work):
                report(row, folder, args)


if __name__ == "__main__":
    np.seterr(all="raise", under="ignore")
    main()
