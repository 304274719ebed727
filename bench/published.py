"""Measures formats on published models, as a Markdown table: `tools/published_models.py` has them.

    python tools/published_models.py build/published
    python bench/published.py                                 # decoders, GGUF files
    python bench/published.py --models qwen2.5-coder-0.5b --transformers

The reference is the file's weights, decoded and computed in float32 by the engine. With
`--transformers`, the first row compares that with transformers (which needs accelerate and gguf).
Texts are pages and sources of this repository, which no published model has seen.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch
from fidelity import Fidelity, Text, compare, logits
from machine import ROOT
from paged_driver import PagedModel

from mlc_native.tokenizers import Tokenizer

sys.path.insert(0, str(ROOT / "tools"))
from published_models import PUBLISHED, fetch

DECODERS = [name for name, model in PUBLISHED.items() if model.weights.endswith(".gguf")]
SOURCES = ("docs/architecture.md", "docs/server.md", "csrc/engine.cc", "docs/tuning.md",
           "mlc_native/serve/model_setup.py", "docs/speculation.md")  # fmt: skip
UNSCORED = 8  # tokens in front, which nothing foretells

# Name, dtype, quantization ("": as the file has it), kv_cache_dtype.
FORMATS = (
    ("float32, keys and values in 8 bits", "float32", "off", "int8"),
    ("bfloat16", "bfloat16", "off", "auto"),
    ("bfloat16, keys and values in 8 bits", "bfloat16", "off", "int8"),
    ("as the file has it", "auto", "", "auto"),
    ("as the file has it, keys and values in 8 bits", "auto", "", "int8"),
    ("q8", "bfloat16", "q8", "auto"),
)


def texts_of(model: Path, num_tokens: int) -> list[Text]:
    """The beginnings of some files."""
    tokenizer = Tokenizer(model)
    texts = []
    for source in SOURCES:
        tokens = tokenizer.encode((ROOT / source).read_text())[:num_tokens]
        tokens = tokenizer.special_tokens.around(tokens)
        texts.append(Text(tokens, np.arange(len(tokens)) >= UNSCORED))
    return texts


def of_transformers(model: Path, texts: list[Text]) -> list[np.ndarray]:
    """The logits that transformers gives for the same file."""
    from transformers import AutoModelForCausalLM

    reference = AutoModelForCausalLM.from_pretrained(
        model.parent, gguf_file=model.name, dtype=torch.float32
    ).eval()
    with torch.inference_mode():
        return [reference(torch.tensor([text.tokens])).logits[0].numpy() for text in texts]


def line(name: str, f: Fidelity) -> str:
    return f"| {name} | {f.error:.3%} | {f.top1:.2%} | {f.divergence:.5f} | {f.perplexity:.3f} |"


def main(argv: list[str] | None = None) -> None:
    """Measures and prints tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "published")
    parser.add_argument("--models", nargs="+", choices=DECODERS, default=DECODERS)
    parser.add_argument("--tokens", type=int, default=256, help="of each text")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--transformers", action="store_true", help="compare with it, too")
    args = parser.parse_args(argv)
    for name in args.models:
        path = fetch(name, args.folder)
        texts = texts_of(path, args.tokens)
        exact = PagedModel(path, "float32", args.threads, "off")
        expected = [logits(exact, text) for text in texts]
        del exact
        print(f"| {name} | logits error, 2-norm | same first choice | divergence, nats "
              "| perplexity |\n|---|--:|--:|--:|--:|")  # fmt: skip
        print(line("float32", compare(expected, expected, texts)), flush=True)
        if args.transformers:
            theirs = of_transformers(path, texts)
            print(line("float32, transformers", compare(theirs, expected, texts)), flush=True)
        for label, dtype, quantization, kv_cache_dtype in FORMATS:
            model = PagedModel(path, dtype, args.threads, quantization, kv_cache_dtype)
            ours = [logits(model, text) for text in texts]
            print(line(label, compare(ours, expected, texts)), flush=True)
        print()


if __name__ == "__main__":
    main()
