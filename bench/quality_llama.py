"""Compares the quantized weights of mlc_native with llama.cpp's formats, as a Markdown table.

    python bench/peers_setup.py --bits 16                    # once: builds llama.cpp
    python bench/quality_llama.py                            # the demo model and random checkpoints
    python bench/quality_llama.py --random qwen3-0.6b:28 --no-demo
    python bench/quality_llama.py --formats                  # ours alone, without llama.cpp
    python bench/quality_llama.py --quantizations --random --documents 2 --formats Q4_K_S Q6_K \
        --model-lib mlc_native/lib/libmlc_native_cuda_emulated.so  # and files as CUDA computes them

A checkpoint is converted to GGUF and quantized by llama.cpp's own programs, without an importance
matrix. The weights of such a file are then decoded and computed in float32 here, which leaves out
that llama.cpp rounds activations to 8 bits. So ours appear twice: computed in float32, which
compares with llama.cpp's rows, and as the engine computes them. So do llama.cpp's files. q6,
budgets of bits and calibrated weights appear as the engine computes them. Bits are those of all
tensors per parameter, and of what the engine has in memory where it computes. The reference is
float32 under `transformers`; texts are those of bench/quality.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from common import DEMO
from fidelity import (
    Fidelity,
    Precision,
    Reference,
    Text,
    compare,
    held_out_texts,
    logits,
    random_texts,
)
from machine import ROOT, provenance
from paged_driver import PagedModel
from peers_setup import Peers
from quality import add_text_arguments, random_checkpoint
from transformers.utils import logging as transformers_logging

from mlc_native import ops
from mlc_native.support.inspection import inspect_model

FORMATS = ("Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0")
RANDOM = ("qwen3-0.6b:2", "qwen3-0.6b:8")
QUANTIZATIONS = ("q8", "q6", "q4", "q6.0", "q5.4", "q4.8", "q4.5")  # and bfloat16


@dataclass(frozen=True)
class Row:
    """A format of weights and its figures."""

    name: str
    bits: float
    fidelity: Fidelity


class RoundedReference(Reference):
    """The checkpoint in `transformers` in float32, its matrices rounded by the engine's code."""

    def round(self, *, first_and_head: str, others: str) -> float:
        """Rounds all matrices to these formats, once. Returns the bits per parameter."""
        bits = 0.0
        count = 0
        head = self._model.get_output_embeddings()
        input_table = self._model.get_input_embeddings()
        tied = head.weight is input_table.weight
        inside = self._model.model.layers
        for module in self._model.modules():
            if not isinstance(module, torch.nn.Linear):
                continue
            sensitive = module is head or any(module is each for each in inside[0].modules())
            chosen = first_and_head if sensitive else others
            weight = module.weight.detach().contiguous()
            packed = ops.pack_weight(weight, chosen)
            rounded = ops.unpack_weight(packed, chosen, weight.shape[1]).float()
            module.weight.data.copy_(rounded[: weight.shape[0]])
            bits += {"q8": 8.25, "q4": 4.5}[chosen] * weight.numel()
            count += weight.numel()
        if not tied:
            bits += 16 * input_table.weight.numel()
            count += input_table.weight.numel()
        return bits / count


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "peers")
    parser.add_argument("--formats", nargs="*", default=FORMATS, help="of llama-quantize")
    parser.add_argument("--quantizations", nargs="*", default=QUANTIZATIONS, help="ours")
    parser.add_argument("--random", nargs="*", default=RANDOM, metavar="NAME[:LAYERS]")
    parser.add_argument("--no-demo", action="store_true")
    parser.add_argument("--model-lib", help="of CUDA, which computes llama.cpp's files, too")
    add_text_arguments(parser)
    return parser.parse_args(argv)


class Comparison:
    """One checkpoint in all formats."""

    def __init__(self, path: Path, texts: list[Text], args: argparse.Namespace) -> None:
        self._path, self._texts, self._args = path, texts, args
        self._parameters = inspect_model(path)["num_parameters"]
        reference = Reference(path)
        self._expected = [reference.logits(text) for text in texts]

    def rows(self) -> Iterator[Row]:
        """Figures of one format after the other."""
        yield self._row(Precision("bfloat16"))
        for name in self._args.quantizations:
            yield self._row(Precision(name, quantization=name))
            yield self._row(Precision(f"{name}, calibrated", quantization=name, calibrated=True))
        for name, sensitive, others in (
            ("q8", "q8", "q8"),
            ("q4", "q8", "q4"),
            ("q4 in all matrices", "q4", "q4"),
        ):
            rounded = RoundedReference(self._path)
            bits = rounded.round(first_and_head=sensitive, others=others)
            ours = (rounded.logits(text) for text in self._texts)
            yield Row(name, bits, compare(ours, self._expected, self._texts))
        if self._args.formats:
            with tempfile.TemporaryDirectory() as folder:
                yield from self._llama_rows(Path(folder))

    def _row(self, precision: Precision) -> Row:
        model = precision.model(self._path, self._args.threads)
        bits = 8 * model.model.metadata["weight_bytes"] / self._parameters
        return Row(f"{precision.name}, as the engine computes", bits, self._measure(model))

    def _llama_rows(self, folder: Path) -> Iterator[Row]:
        peers = Peers(self._args.folder)
        plain = folder / "F32.gguf"
        peers.convert(self._path, plain, "f32")
        for name in self._args.formats:
            file = folder / f"{name}.gguf"
            peers.quantize(plain, file, name)
            model = PagedModel(file, "float32", self._args.threads, "off")
            metadata = plain.stat().st_size - 4 * self._parameters
            bits = 8 * (file.stat().st_size - metadata) / self._parameters
            yield Row(f"llama.cpp {name}", bits, self._measure(model))
            model = PagedModel(file, "float32", self._args.threads)
            bits = 8 * model.model.metadata["weight_bytes"] / self._parameters
            yield Row(f"llama.cpp {name}, as the engine computes", bits, self._measure(model))
            if self._args.model_lib:
                model = PagedModel(file, "float16", model_lib=self._args.model_lib)
                bits = 8 * model.model.metadata["weight_bytes"] / self._parameters
                yield Row(f"llama.cpp {name}, as CUDA computes", bits, self._measure(model))
            file.unlink()

    def _measure(self, model: PagedModel) -> Fidelity:
        return compare((logits(model, t) for t in self._texts), self._expected, self._texts)


def table(name: str, rows: list[Row]) -> str:
    lines = [
        f"| {name} | bits per weight | logits error, 2-norm | same first choice "
        "| divergence, nats |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in sorted(rows, key=lambda row: row.bits):
        f = row.fidelity
        lines.append(
            f"| {row.name} | {row.bits:.2f} | {f.error:.2%} | {f.top1:.2%} | {f.divergence:.5f} |"
        )
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> None:
    """Measures, prints tables, writes JSON."""
    args = parse_args(argv)
    transformers_logging.disable_progress_bar()
    out: dict[str, Any] = provenance()

    def measure(name: str, path: Path, texts: list[Text]) -> None:
        rows = list(Comparison(path, texts, args).rows())
        print(table(name.replace(":", ", layers: "), rows), flush=True)
        out[name] = [{"name": r.name, "bits": r.bits} | asdict(r.fidelity) for r in rows]

    if not args.no_demo:
        measure("demo model", DEMO, held_out_texts(args.documents))
    for name in args.random:
        with random_checkpoint(name, args.seed) as path:
            measure(name, path, random_texts(path, args.tokens, args.seed))
    if args.json is not None:
        args.json.write_text(json.dumps(out, indent=1) + "\n")
        print(f"figures: {args.json}", file=sys.stderr)


if __name__ == "__main__":
    main()
