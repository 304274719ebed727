"""The predictions of model.py as tables.

python bench/cuda/model_table.py          # for the kernels of the record "before" and now
python bench/cuda/model_table.py --write  # into bench/results/cuda_model.md
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

from model import Predictor
from model_machine import BEFORE, LONGER, NOW, RECORDS, WORKER
from model_sizes import BITS, LATENT_SHAPES, MODELS, Model

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "bench/results/cuda_model.md"


def order_of_sums(now: Predictor) -> list[str]:
    """What one order of sums costs or gains."""
    lines = [
        "",
        "One order of sums for any number of rows (`deterministic`), prefill of 8,192 tokens:",
        "",
        "| model | with cuBLASLt, ms | in one order, ms | tokens/s |",
        "|---|--:|--:|--:|",
    ]
    for name, model in MODELS.items():
        fast, fixed = now.prefill(8192, model), now.prefill(8192, model, fixed=True)
        lines.append(
            f"| {name} | {1e3 * fast:.0f} | {1e3 * fixed:.0f} | {100 * (fast / fixed - 1):+.0f} % |"
        )
    lines += [
        "",
        "A layer's four products, us: Gemv (in pieces of 32 rows), Gemm, WarpgroupGemm, cuBLASLt. "
        "Without BatchGemv and WarpgroupGemm the decoder takes Gemv up to 8 rows, up to 16 where "
        "the weight has less than 16,384 rows, and up to 32 where it has less than 4,096:",
        "",
    ]
    sizes = (8, 12, 16, 24, 32, 48, 64, 128, 256)
    lines += ["| model | rows " + "| " + " | ".join(f"{size}" for size in sizes) + " |"]
    lines += ["|---|---|" + "--:|" * len(sizes)]
    for name, model in MODELS.items():
        for n, k in model.products:
            cells = []
            for rows in sizes:
                pieces = math.ceil(rows / 32)
                times = (
                    pieces * now.gemv(min(rows, 32), n, k),
                    now.gemm(rows, n, k),
                    now.warpgroup_gemm(rows, n, k),
                    now.cublas(rows, n, k),
                )
                cells.append(", ".join(f"{1e6 * seconds:.0f}" for seconds in times))
            lines.append(f"| {name} | {n:,} x {k:,} | " + " | ".join(cells) + " |")
    return lines


def norms_in_products(now: Predictor) -> list[str]:
    """What products of one row cost that add to the residual and normalize it."""
    lines = [
        "",
        "One row through the product behind attention, the norm and the product of q, k and v, or "
        "of gate and up, in us: with a kernel for the norm, and with products that add to the "
        "residual and normalize it. The decoder has them up to 4,096 elements, of quantized "
        "weights from 2,049 on, because with fewer an H100 was slower:",
        "",
        "| | " + " | ".join(f"{bits}, kernel, in products" for bits in BITS) + " |",
        "|---|" + "--:|" * len(BITS),
    ]
    for name, model in MODELS.items():
        for place, (n, _) in (("q, k, v", model.products[0]), ("gate, up", model.products[2])):
            cells = []
            for bits in BITS.values():
                times = [now.around_norm(n, model.hidden, bits, fused) for fused in (False, True)]
                cells.append(", ".join(f"{1e6 * seconds:.1f}" for seconds in times))
            lines.append(f"| {name}, {place} | " + " | ".join(cells) + " |")
    return lines


def latent_attention(now: Predictor) -> list[str]:
    """With latents in pages, and without."""
    lines = [
        "Attention of latents, us in a layer, where pages have the latents; in brackets where they "
        "have the keys and values of all heads, which have 192 elements:",
        "",
        "| | DeepSeek V2 Lite (16 heads), bf16 | E4M3 | GLM-4.7-Flash (20 heads), bf16 | E4M3 |",
        "|---|--:|--:|--:|--:|",
    ]
    shapes = [LATENT_SHAPES[name] for name in ("deepseek-v2-lite", "glm-4.7-flash")]
    whole = [Model(2048, 1, 1, heads.heads, heads.heads, 192, 1) for heads in shapes]
    for rows, keys in ((1, 512), (1, 4096), (64, 4096), (256, 600)):
        cells = []
        for heads, model in zip(shapes, whole, strict=True):
            latents = now.latent_decode_attention(rows, keys, heads)
            narrow = now.latent_decode_attention(rows, keys, heads.with_float8_keys())
            all_heads = now.decode_attention(rows, keys, model)
            cells += [f"{1e6 * latents:.1f} ({1e6 * all_heads:.1f})", f"{1e6 * narrow:.1f}"]
        lines.append(f"| decode, {rows} x {keys:,} | " + " | ".join(cells) + " |")
    for rows in (1024, 8192):
        cells = []
        for heads, model in zip(shapes, whole, strict=True):
            latents = now.latent_prefill_attention(rows, heads)
            narrow = now.latent_prefill_attention(rows, heads.with_float8_keys())
            all_heads = now.prefill_attention(rows, replace(model, dim=256))  # which it pads to
            cells += [f"{1e6 * latents:,.0f} ({1e6 * all_heads:,.0f})", f"{1e6 * narrow:,.0f}"]
        lines.append(f"| prefill, {rows:,} | " + " | ".join(cells) + " |")
    return [*lines, ""]


def table() -> str:
    """All predictions, before and now, as Markdown."""
    before, separate, now = Predictor(BEFORE), Predictor(LONGER), Predictor(NOW)
    lines = [
        "# Predicted times on an H200",
        "",
        "Written by `python bench/cuda/model_table.py --write`. **Times are predicted, not "
        "measured**: the model and its constants are in `model.py` and `model_machine.py` beside "
        "that file. Edges and "
        "the bandwidth within reach are those of an H100, which has run the kernels since "
        "([gpu.md](gpu.md)). A share is the least time "
        "that bandwidth or peak allows, divided by the prediction. Decode is at a context of 256 "
        "tokens for batch 1, else 1,024; weights and KV are bfloat16.",
        "",
        "| model, batch | least, ms | before, ms | now, ms | attention before, now "
        "| tokens/s before, now |",
        "|---|--:|--:|--:|---|---|",
    ]
    for name, model in MODELS.items():
        for rows in (1, 8, 64, 256):
            keys = 256 if rows == 1 else 1024
            ideal = now.ideal(rows, keys, model)
            times = [p.decode(rows, keys, model) for p in (before, now)]
            parts = [
                model.layers * p.decode_attention(rows, keys, model) * 1e3 for p in (before, now)
            ]
            cells = [f"{1e3 * t:.2f} ({100 * ideal / t:.0f} %)" for t in times]
            rates = ", ".join(f"{rows / t:,.0f}" for t in times)
            lines.append(
                f"| {name}, {rows} | {1e3 * ideal:.2f} | {cells[0]} | {cells[1]} "
                f"| {parts[0]:.2f}, {parts[1]:.2f} | {rates} |"
            )
    names = [kernels.name for kernels in RECORDS]
    lines += ["", "| ms a step, change by change | " + " | ".join(names) + " |"]
    lines += ["|---|" + "--:|" * len(names)]
    for name, model in MODELS.items():
        for rows in (1, 8, 64, 256):
            keys = 256 if rows == 1 else 1024
            steps = [Predictor(kernels).decode(rows, keys, model) for kernels in RECORDS]
            cells = [f"{1e3 * seconds:.3f}" for seconds in steps]
            lines.append(f"| {name}, {rows} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "What the kernels that are left between two products take, in per cent of a step: the most "
        "that fusing them could gain. A product that adds to the residual and leaves its rows "
        "without the factor of the norm (sums of squares of eight columns beside them, added up by "
        "the next product) would save the norms; it has to be done in all products and in the norm "
        "at once, or rows lose their bits from one batch to another. A product that computes the "
        "norm of its rows by itself keeps the bits, but each block then reads 4 bytes of an "
        "element of x instead of 2, which with 8 rows is as much as it reads of the weights:",
        "",
        "| | 0.6B, batch 1 | 8 | 1B, 1 | 8 | 8B, 1 | 8 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for fused in ("norms", "rope and writing of keys and values"):
        shares = []
        for model in MODELS.values():
            for rows, keys in ((1, 256), (8, 1024)):
                norms = 2 * separate.norm(rows, model.hidden)
                one = norms if fused == "norms" else separate.rope(rows, model)
                shares.append(100 * model.layers * one / separate.decode(rows, keys, model))
        lines.append(f"| {fused} | " + " | ".join(f"{share:.1f}" for share in shares) + " |")
    lines += norms_in_products(now)
    lines += [
        "",
        "| prefill of 8,192 tokens | least, ms | before, ms | now, ms | attention before, now |",
        "|---|--:|--:|--:|---|",
    ]
    for name, model in MODELS.items():
        ideal = now.ideal_prefill(8192, model)
        times = [p.prefill(8192, model) for p in (before, now)]
        parts = [model.layers * p.prefill_attention(8192, model) * 1e3 for p in (before, now)]
        cells = [f"{1e3 * t:.0f} ({100 * ideal / t:.0f} %)" for t in times]
        lines.append(
            f"| {name} | {1e3 * ideal:.0f} | {cells[0]} | {cells[1]} "
            f"| {parts[0]:.0f}, {parts[1]:.0f} |"
        )
    lines += order_of_sums(now)
    lines += ["", "| shortest splits of decode attention | batch 1 | 8 | 64 | 256 |"]
    lines += ["|---|--:|--:|--:|--:|"]
    for name, model in MODELS.items():
        for split in (64, 128, 256):
            predictor = Predictor(replace(WORKER, min_split=split))
            cells = []
            for rows in (1, 8, 64, 256):
                keys = 256 if rows == 1 else 1024
                seconds = model.layers * predictor.decode_attention(rows, keys, model)
                cells.append(f"{1e3 * seconds:.2f}")
            lines.append(f"| {name}, {split} keys, ms a step | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Steps with splits of at least 256 keys instead of 128, in per cent of their time. A row's "
        "splits depend on its own length alone, so that its bits do not depend on the batch; "
        "above 1,024 keys all batches gain, so there it is 256:",
        "",
        "| context | 0.6B, batch 1 | 8 | 64 | 1B, 1 | 8 | 64 | 8B, 1 | 8 | 64 |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for keys in (256, 1024, 2048, 3072):
        cells = []
        for model in MODELS.values():
            for rows in (1, 8, 64):
                shortest = [Predictor(replace(WORKER, min_split=split)) for split in (128, 256)]
                short, long = (p.decode(rows, keys, model) for p in shortest)
                cells.append(f"{100 * (long / short - 1):+.1f}")
        lines.append(f"| {keys:,} | " + " | ".join(cells) + " |")
    served = [p.serving(256, 100, 1024, MODELS["0.6B"]) for p in (before, now)]
    lines += [
        "",
        "256 requests at once on 0.6B, 100 to 1,024 tokens in and out, output tokens per second: "
        f"{served[0]:,.0f} before, {served[1]:,.0f} now.",
        "",
    ]
    lines += latent_attention(now)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {OUT.relative_to(ROOT)}")
    if parser.parse_args().write:
        OUT.write_text(table())
    else:
        print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
