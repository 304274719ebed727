"""Images in chats: the time up to the first token of an answer, beside transformers.

    python bench/images.py --edge 512 --threads 2 [--json F]

The model has the shape of SmolVLM-256M and random weights. In each of `--repeats` rounds both sides
answer a chat with one image that neither has seen, in turn, every other round in reverse.
`encode` is the engine's tower, processor and tokenizer (`render_chat`), `prefill` the chat behind
it, whose rows are kept by then, and `again` the same chat once more, which the prefix cache has. Of
transformers, `processor` makes the inputs, and `generate` one token. Both compute in float32.
Figures are medians in milliseconds with the smallest and the largest value.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from machine import ROOT, provenance

from mlc_native import EngineConfig, MLCEngine
from mlc_native.serve.images.tower import load_processor

sys.path.insert(0, str(ROOT / "tests" / "python" / "models"))
from image_folders import MODELS, make_image_model, picture

NAME = "smolvlm"
VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "image_size": 512, "patch_size": 16,
}  # fmt: skip
TEXT = {
    "model_type": "llama", "vocab_size": 49280, "hidden_size": 576, "intermediate_size": 1536,
    "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
    "max_position_embeddings": 8192,
}  # fmt: skip
Times = dict[str, float]


def make_folder(folder: Path, edge: int) -> Path:
    """The folder of the model, whose images are enlarged until an edge has this length."""
    shape = replace(
        MODELS[NAME],
        processor={"processor_class": "SmolVLMProcessor", "image_seq_len": 64},
        images={
            "image_processor_type": "SmolVLMImageProcessor",
            "size": {"longest_edge": edge},
            "max_image_size": {"longest_edge": 512},
        },
        config={"vision_config": VISION, "text_config": TEXT, "scale_factor": 4},
    )
    MODELS["bench"] = shape
    return make_image_model("bench", folder)


def chat(seed: int) -> list[dict[str, Any]]:
    """A chat with an image of random colours."""
    parts = [{"type": "image", "image": picture(seed, 640, 480)}]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What is this?"}]}]


class Ours:
    """The engine."""

    def __init__(self, engine: MLCEngine) -> None:
        self.engine = engine

    def times(self, messages: list[dict[str, Any]]) -> Times:
        """Milliseconds of each part."""

        def answer() -> None:
            self.engine.chat.completions.create(messages=messages, max_tokens=1, temperature=0)

        return {
            "encode": _ms(lambda: self.engine.render_chat(messages)),
            "prefill": _ms(answer),
            "again": _ms(answer),
        }


class Theirs:
    """transformers."""

    def __init__(self, folder: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        kind: Any = transformers.AutoModelForImageTextToText
        self._model = kind.from_pretrained(folder, dtype=torch.float32).eval()
        self._processor = load_processor(folder, NAME, self._model.config.image_token_id)

    @torch.inference_mode()
    def times(self, messages: list[dict[str, Any]]) -> Times:
        """Milliseconds of each part."""
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        inputs: dict[str, Any] = {}

        def process() -> None:
            image = messages[0]["content"][0]["image"]
            inputs.update(
                self._processor(
                    images=[[image]], text=[text], add_special_tokens=False, return_tensors="pt"
                )
            )

        def generate() -> None:
            self._model.generate(**inputs, do_sample=False, max_new_tokens=1)

        return {"processor": _ms(process), "generate": _ms(generate)}


def _ms(call: Any) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    """The command's arguments."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--edge", type=int, default=512, help="more than 512 makes tiles")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write every round's figures here")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Measures and prints a line for each part."""
    args = parse_args(argv)
    results: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = make_folder(Path(temporary) / "model", args.edge)
        config = EngineConfig(
            dtype="float32", num_threads=args.threads, max_single_sequence_length=4096
        )
        with MLCEngine(str(folder), "cpu", engine_config=config) as engine:
            sides: list[Ours | Theirs] = [Ours(engine), Theirs(folder, args.threads)]
            for i in range(-1, args.repeats):  # the first one warms up
                for side in sides if i % 2 == 0 else reversed(sides):
                    for part, milliseconds in side.times(chat(i + 1)).items():
                        if i >= 0:
                            name = f"{type(side).__name__.lower()}: {part}"
                            results.setdefault(name, []).append(milliseconds)
            tokens = len(engine.render_chat(chat(0)).token_ids)
    print(f"a prompt of {tokens} tokens, {args.threads} threads, median of {args.repeats}")
    for name, values in results.items():
        spread = f"{min(values):.0f} .. {max(values):.0f}"
        print(f"  {name:20} {statistics.median(values):8.1f} ms ({spread})")
    if args.json is not None:
        args.json.write_text(json.dumps(provenance() | {"ms": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
