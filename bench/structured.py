"""Measures jump-forward decoding on answers of a JSON schema, in pairs of runs with and without it.

    python bench/structured.py --batch 1 16
    python bench/structured.py --batch 1 --like qwen3-0.6b --dtype bfloat16 --threads 2 --repeats 3

Each request asks for a record of the schema below, sampled with its own seed. Every repeat runs the
batch once with jump-forward decoding and once without, in alternating order; figures are medians.
The answers of both are valid but differ, so `text` is bytes of answers per second. `tokens` is
tokens of the answers per second, including forced ones. `forwards` is the number of engine steps
for the whole batch. With --like the model has random weights of that shape and the tokenizer of the
demo model.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import mlc_native
from mlc_native import SyncMLCEngine
from mlc_native.protocol.debug_protocol import DebugConfig
from mlc_native.protocol.generation_config import GenerationConfig
from mlc_native.protocol.response_format import RequestResponseFormat
from mlc_native.serve.config import EngineConfig

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
from make_random_checkpoint import make_checkpoint

MODES = ("constraint", "jump_forward")
PROMPT = "<|bos|><|user|>Answer in JSON: who are you?<|end|><|assistant|>"
SCHEMA = {
    "type": "object",
    "properties": {
        "customer_identifier": {"type": "integer", "minimum": 0, "maximum": 9999},
        "is_premium_member": {"type": "boolean"},
        "preferred_language": {"enum": ["english", "german", "french", "japanese"]},
        "shipping_address": {
            "type": "object",
            "properties": {
                "postal_code": {"type": "integer", "minimum": 10000, "maximum": 99999},
                "country": {"enum": ["Germany", "France", "Japan"]},
            },
            "required": ["postal_code", "country"],
        },
        "number_of_orders": {"type": "integer", "minimum": 0, "maximum": 99},
        "wants_newsletter": {"type": "boolean"},
    },
    "required": [
        "customer_identifier",
        "is_premium_member",
        "preferred_language",
        "shipping_address",
        "number_of_orders",
        "wants_newsletter",
    ],
}


@dataclass
class Figures:
    """Figures of one run of a batch."""

    seconds: float
    tokens: int
    text_bytes: int
    forwards: int


def config(mode: str, seed: int) -> GenerationConfig:
    schema = {"name": "record", "schema": SCHEMA}
    return GenerationConfig(
        temperature=1.0,
        seed=seed,
        max_tokens=300,
        response_format=RequestResponseFormat.model_validate(
            {"type": "json_schema", "json_schema": schema}
        ),
        debug_config=DebugConfig(grammar_execution_mode=mode),
    )


def run(engine: SyncMLCEngine, mode: str, batch: int) -> Figures:
    before = engine.metrics()
    start = time.perf_counter()
    texts, _ = engine.generate([PROMPT] * batch, [config(mode, seed) for seed in range(batch)])
    seconds = time.perf_counter() - start
    after = engine.metrics()
    for (text,) in texts:
        json.loads(text)
    return Figures(
        seconds=seconds,
        tokens=after["completion_tokens_sum"] - before["completion_tokens_sum"],
        text_bytes=sum(len(text.encode()) for (text,) in texts),
        forwards=after["num_steps"] - before["num_steps"],
    )


def measure(engine: SyncMLCEngine, batch: int, repeats: int) -> None:
    for mode in MODES:  # compiles the grammar, warms the caches
        run(engine, mode, batch)
    figures: dict[str, list[Figures]] = {mode: [] for mode in MODES}
    for i in range(repeats):
        for mode in MODES if i % 2 == 0 else reversed(MODES):
            figures[mode].append(run(engine, mode, batch))
    pairs = zip(figures["constraint"], figures["jump_forward"], strict=True)
    gain = statistics.median(
        (jump.text_bytes / jump.seconds) / (plain.text_bytes / plain.seconds)
        for plain, jump in pairs
    )
    for mode in MODES:
        tokens = statistics.median(each.tokens / each.seconds for each in figures[mode])
        text = statistics.median(each.text_bytes / each.seconds for each in figures[mode])
        forwards = statistics.median(each.forwards for each in figures[mode])
        ratio = f"{gain:6.2f}x" if mode == "jump_forward" else ""
        print(f"{batch:5}  {mode:12}  {tokens:9.0f}  {text:9.0f}  {forwards:8.0f}  {ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--like", help="a shape of tools/make_random_checkpoint.py")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = "demo"
        if args.like:
            model = folder
            make_checkpoint(args.like, folder, dtype=args.dtype, seed=0)
            demo = Path(mlc_native.__file__).parent / "demo_model"
            shutil.copy(demo / "tokenizer.json", folder)
        engine_config = EngineConfig(
            dtype=args.dtype,
            num_threads=args.threads,
            max_num_sequence=max(args.batch),
            max_total_sequence_length=512 * max(args.batch),
            max_single_sequence_length=512,
            verbose=False,
        )
        engine = SyncMLCEngine(model, engine_config=engine_config)
        print("batch  mode           tokens/s  text B/s  forwards  text")
        for batch in args.batch:
            measure(engine, batch, args.repeats)


if __name__ == "__main__":
    main()
