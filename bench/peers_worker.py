"""One side of bench/peers.py in a process of its own: loads a model, then measures rows on request.

    python bench/peers_worker.py SIDE MODEL BITS THREADS

SIDE is mlc_native, openvino or transformers, BITS 16, 8 or 4, or another word for a model that is
quantized already. The process writes a line when the
model is loaded. Each line that it reads is a row as JSON ({"batch", "prompt_len", "new_tokens"});
the answer is a line with the tokens per second of the prompts and of the tokens after the first
({"prefill", "decode"}). All prompts of a row are computed in the first step, and each later step
computes one token of each sequence, so `decode` is the batch over the median step.

Imports nothing of this project unless SIDE is mlc_native: the other sides run in the environment
that bench/peers_setup.py makes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

MOST_SEQUENCES = 32
MOST_TOKENS = 34_816  # prompts and answers of a row
Prompts = list[list[int]]
# Takes prompts and the number of tokens to generate for each; the seconds of each step.
Side = Callable[[Prompts, int], list[float]]


def seconds_of(step: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def mlc_native_side(path: str, bits: str, threads: int) -> Side:
    """The engine, stepped by this thread. K and V are bfloat16."""
    from mlc_native import SyncMLCEngine
    from mlc_native.protocol.debug_protocol import DebugConfig
    from mlc_native.protocol.generation_config import GenerationConfig
    from mlc_native.serve.config import EngineConfig

    config = EngineConfig(
        dtype="bfloat16",
        quantization={"8": "q8", "4": "q4"}.get(bits),
        num_threads=threads,
        max_num_sequence=MOST_SEQUENCES,
        max_total_sequence_length=MOST_TOKENS,
        max_single_sequence_length=MOST_TOKENS,
        prefill_chunk_size=MOST_TOKENS,
        prefix_cache_mode="disable",
        verbose=False,
    )
    engine = SyncMLCEngine(path, device="cpu", engine_config=config)

    def run(prompts: Prompts, new_tokens: int) -> list[float]:
        generation = GenerationConfig(
            temperature=0.0, max_tokens=new_tokens, debug_config=DebugConfig(ignore_eos=True)
        )
        for i, prompt in enumerate(prompts):
            engine.add_request(engine.create_request(str(i), prompt, generation))
        times = []
        while not engine.empty():
            times.append(seconds_of(engine.step))
        return times

    return run


def openvino_side(path: str, bits: str, threads: int) -> Side:
    """OpenVINO GenAI's ContinuousBatchingPipeline. `bits` are those of the converted folder; K and
    V have 16 bits, as on the other sides."""
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    del bits
    scheduler = genai.SchedulerConfig()
    scheduler.max_num_seqs = MOST_SEQUENCES
    scheduler.max_num_batched_tokens = MOST_TOKENS
    scheduler.enable_prefix_caching = False
    scheduler.cache_size = 4  # GB
    # Without instructions for bfloat16 it computes in fp32, its default then. Restricted to AVX2
    # without VNNI, the products of its dynamic quantization have no kernel.
    restricted = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    has_bf16 = "BF16" in ov.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    in_bf16 = has_bf16 and not restricted
    precisions: dict[str, object] = {
        "KV_CACHE_PRECISION": ov.Type.bf16 if in_bf16 else ov.Type.f16,
        "INFERENCE_PRECISION_HINT": ov.Type.bf16 if in_bf16 else ov.Type.f32,
    }
    if restricted == "AVX2":
        precisions["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    properties = {
        "INFERENCE_NUM_THREADS": threads,
        **precisions,
        "PERFORMANCE_HINT": "LATENCY",
    }
    pipeline = genai.ContinuousBatchingPipeline(path, scheduler, "CPU", properties)

    def run(prompts: Prompts, new_tokens: int) -> list[float]:
        config = genai.GenerationConfig(max_new_tokens=new_tokens, ignore_eos=True, do_sample=False)
        handles = [
            pipeline.add_request(i, ov.Tensor(np.array([prompt], dtype=np.int64)), config)
            for i, prompt in enumerate(prompts)
        ]
        times = []
        while pipeline.has_non_finished_requests():
            times.append(seconds_of(pipeline.step))
        del handles
        return times

    return run


def transformers_side(path: str, bits: str, threads: int) -> Side:
    """The forward of `transformers` with its own cache, and the largest logit."""
    import torch
    import transformers

    if bits != "16":
        raise ValueError(f"transformers is measured in 16 bits, not in {bits}")
    torch.set_num_threads(threads)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()

    @torch.inference_mode()
    def run(prompts: Prompts, new_tokens: int) -> list[float]:
        ids, cache = torch.tensor(prompts), None
        times = []
        for _ in range(new_tokens):
            start = time.perf_counter()
            out = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            ids, cache = out.logits[:, -1:].argmax(-1), out.past_key_values
            times.append(time.perf_counter() - start)
        return times

    return run


SIDES = {
    "mlc_native": mlc_native_side,
    "openvino": openvino_side,
    "transformers": transformers_side,
}


def measure(run: Side, row: dict[str, int]) -> dict[str, float]:
    """Tokens per second of one row."""
    draw = random.Random(row["batch"] * 1_000_003 + row["prompt_len"])
    prompts = [
        [draw.randrange(300, 100_000) for _ in range(row["prompt_len"])]
        for _ in range(row["batch"])
    ]
    times = run(prompts, row["new_tokens"])
    if len(times) != row["new_tokens"]:
        raise RuntimeError(f"{len(times)} steps for {row['new_tokens']} tokens")
    rates = {"prefill": row["batch"] * row["prompt_len"] / times[0]}
    if len(times) > 1:
        rates["decode"] = row["batch"] / statistics.median(times[1:])
    return rates


def main() -> None:
    """Serves rows until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("model", help="what the side loads: a folder or a file")
    parser.add_argument("bits")
    parser.add_argument("threads", type=int)
    args = parser.parse_args()
    answers = sys.stdout
    sys.stdout = sys.stderr  # what libraries print
    run = SIDES[args.side](args.model, args.bits, args.threads)
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(run, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
