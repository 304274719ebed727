"""Measures the seconds from the start of a process to the first token of a checkpoint.

    python bench/first_token.py --model DIR --device cuda:0

Each side runs in processes of its own. The first process puts the files into the page cache and is
not counted. The time includes imports, loading, compilation, graph capture, and one token of a
short prompt.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

from common import add_model_arguments, model_folder, torch_device

OURS = """
import sys
from mlc_native import SyncMLCEngine
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.serve.config import EngineConfig
path, device, model_lib = sys.argv[1:]
config = EngineConfig(dtype="bfloat16", verbose=False)
engine = SyncMLCEngine(path, device=device, model_lib=model_lib or None, engine_config=config)
engine.generate([[5, 6, 7]], GenerationConfig(temperature=0.0, max_tokens=1))
print("token", flush=True)
"""
TRANSFORMERS = """
import sys
import torch
from transformers import AutoModelForCausalLM
path, device, _ = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).to(device)
ids = torch.tensor([[5, 6, 7]], device=device)
model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, do_sample=False).cpu()
print("token", flush=True)
"""


def start_to_first_token(program: str, path: str, device: str, model_lib: str | None) -> float:
    """Raises subprocess.CalledProcessError when the program fails."""
    command = [sys.executable, "-c", program, path, device, model_lib or ""]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while (line := process.stdout.readline()) and line != "token\n":
            pass
        seconds = time.perf_counter() - start
    if not line or process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, [sys.executable, "-c", "..."])
    return seconds


OUR_NAME = "mlc_native"
SIDES = {OUR_NAME: OURS, "transformers": TRANSFORMERS}


def measure(args: argparse.Namespace, path: str, repeats: int, side: str) -> list[float]:
    """Seconds of a side."""
    device = args.device if side == OUR_NAME else torch_device(args)
    starts = range(repeats + 1)
    times = [start_to_first_token(SIDES[side], path, device, args.model_lib) for _ in starts]
    return times[1:]


def main(argv: list[str] | None = None) -> None:
    """Prints the median of each side."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_model_arguments(parser, like="qwen3-0.6b")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args(argv)
    with model_folder(args) as path:
        for name in SIDES:
            seconds = measure(args, path, args.repeats, name)
            print(f"{name:14} {statistics.median(seconds):8.2f} s  ({min(seconds):.2f} .. "
                  f"{max(seconds):.2f})")  # fmt: skip


if __name__ == "__main__":
    main()
