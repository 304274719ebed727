"""What to do next for each outcome of a run on a GPU.

`decide` reads what bench/cuda/micro.cc and kernels.cc have measured, and the figures of
bench/gpu.py. Each question has an answer, with the number that was expected, and what follows from
it. A question whose figures are absent stays in the table as "not measured".
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "bench" / "cuda"))
import model as cuda_model

Answer = tuple[str, str]  # what was measured, and what to do
Micro = list[dict[str, Any]]
Figures = dict[str, Any]

NEAR = 0.25  # relative difference up to which a constant of the model stays
MODEL = "bench/cuda/model_machine.py"
US = 1e-6


def of(micro: Micro, name: str) -> Micro:
    """The results with this name."""
    return [each for each in micro if each["name"] == name]


def constant(name: str, measured: float, expected: float) -> str:
    """What to do about a constant of the cost model, in seconds."""
    if abs(measured / expected - 1) <= NEAR:
        return f"keep {name} in {MODEL}"
    return f"set {name} to {measured / US:.2f} us in {MODEL}, and write its table anew"


def edges(micro: Micro) -> dict[str, float]:
    """Seconds by order, of the larger grid."""
    rows = sorted(of(micro, "edge"), key=lambda each: each["blocks"])
    return {each["order"]: each["seconds"] for each in rows}


def edge(micro: Micro, _figures: Figures, machine: cuda_model.Machine) -> Answer | None:
    seconds = edges(micro).get("one by one")
    if seconds is None:
        return None
    text = f"{seconds / US:.2f} us, expected {machine.edge_s / US:.2f}"
    return text, constant("edge_s", seconds, machine.edge_s)


def dependent_edge(micro: Micro, _figures: Figures, machine: cuda_model.Machine) -> Answer | None:
    seconds = edges(micro)
    if len(seconds) < 2:
        return None
    early, late = seconds["dependent"], seconds["one by one"]
    text = f"{early / US:.2f} us, expected {machine.dependent_edge_s / US:.2f}"
    if early > 0.9 * late:
        return text, (
            "dependent launches gain nothing: see whether the driver keeps them in graphs (time "
            "the same launches without a graph) before anything is built on them"
        )
    return text, constant("dependent_edge_s", early, machine.dependent_edge_s)


def dependent_decode(
    _micro: Micro, figures: Figures, _machine: cuda_model.Machine
) -> Answer | None:
    rates = [
        figures.get(name, {}).get("mlc_native bf16", {}).get("tokens_per_s")
        for name in ("decode 0.6b", "decode 0.6b, one by one")
    ]
    if None in rates:
        return None
    gain = rates[0] / rates[1] - 1
    text = f"{100 * gain:+.1f} % tokens/s"
    if gain < 0.02:
        return text, "make LaunchOrder::kOneByOne the default of models (cuda_model.h)"
    return text, "keep LaunchOrder::kDependent"


def barrier(micro: Micro, _figures: Figures, _machine: cuda_model.Machine) -> Answer | None:
    rows, seconds = of(micro, "grid barrier"), edges(micro)
    if not rows or "dependent" not in seconds:
        return None
    each = rows[0]["seconds"]
    text = f"{each / US:.2f} us, an edge {seconds['dependent'] / US:.2f}"
    if each < 0.7 * seconds["dependent"]:
        return text, "a persistent decode kernel pays: build it for models up to 3B"
    return text, "no persistent kernel: barriers cost what edges cost"


def reads(micro: Micro, _figures: Figures, machine: cuda_model.Machine) -> Answer | None:
    rows = of(micro, "read")
    if not rows:
        return None
    rates = {(each["bytes"], each["loads"]): each["bytes"] / each["seconds"] for each in rows}
    share = max(rates.values()) / machine.bytes_per_s
    text = f"{max(rates.values()) / 1e12:.2f} TB/s, {100 * share:.0f} % of a copy"
    if abs(share / machine.reachable - 1) <= 0.05:
        return text, f"keep reachable in {MODEL}"
    return text, f"set reachable to {share:.2f} in {MODEL}, and write its table anew"


def loads_in_flight(micro: Micro, _figures: Figures, _machine: cuda_model.Machine) -> Answer | None:
    rows = of(micro, "read")
    if not rows:
        return None
    size = sorted({each["bytes"] for each in rows})[len({each["bytes"] for each in rows}) // 2]
    rates = {e["loads"]: e["bytes"] / e["seconds"] for e in rows if e["bytes"] == size}
    enough = min(loads for loads, rate in rates.items() if rate >= 0.95 * max(rates.values()))
    limits = "bench/cuda/sass_limits.json"
    return f"{enough} of 16 bytes per thread", (
        f"see in {limits} that products and attention have at least {enough} in flight"
    )


def cached_reads(micro: Micro, _figures: Figures, machine: cuda_model.Machine) -> Answer | None:
    rows = of(micro, "cached read")
    if not rows:
        return None
    rate = rows[0]["bytes"] / rows[0]["seconds"]
    # What each multiprocessor copies for a stage of 64 k of WarpgroupGemm's largest tile.
    tile = cuda_model.WARPGROUP_TILES[0]
    bytes_of_stage = 2 * 64 * (tile.weight_rows + tile.x_rows)
    least = machine.multiprocessors * bytes_of_stage / rate
    text = f"{rate / 1e12:.2f} TB/s; a stage of WarpgroupGemm's copies takes at least "
    text += f"{least / US:.2f} of {tile.work_s / US:.2f} us"
    if least >= 0.8 * tile.work_s:
        return text, (
            "the cache bounds WarpgroupGemm: let the two blocks of a cluster that have the same "
            "weights copy half of them each, for both (bulk copies to all blocks of a cluster)"
        )
    return text, "the cache does not bound WarpgroupGemm: see its shared memory and barriers first"


def cublas_bits(micro: Micro, _figures: Figures, _machine: cuda_model.Machine) -> Answer | None:
    rows = of(micro, "cublaslt bits")
    if not rows:
        return None
    refused = sorted({r["m"] for each in rows for r in each["rows"] if r["equal"] is None})
    differ = {each["shape"]: [r["m"] for r in each["rows"] if r["equal"] is False] for each in rows}
    differ = {shape: rows for shape, rows in differ.items() if rows}
    if refused:
        return f"it refused m = {refused}", "see its log: products of many rows run in pieces"
    if not differ:
        return "equal for all m from 33 on", (
            "rows keep their bits above 32: only the border 32 | 33 is left to close"
        )
    text = "; ".join(f"{shape}: m = {m}" for shape, m in differ.items())
    return f"they differ, {text}", "batches above 32 rows need our own product to keep their bits"


def own_products(micro: Micro, _figures: Figures, _machine: cuda_model.Machine) -> Answer | None:
    rows = [each for each in of(micro, "product") if "gemm_s" in each]
    if not rows:
        return None
    slower = {each["m"] for each in rows if each["gemm_s"] >= each["gemv_s"]}
    first = min((r["m"] for r in rows if r["m"] > max(slower, default=0)), default=None)
    many = [e["gemm_s"] / e["cublaslt_s"] for e in rows if e["m"] > 32 and "cublaslt_s" in e]
    text = f"Gemm is faster than Gemv for every shape from m = {first} on"
    if not many:
        return text, "move the border of Gemv there (their bits are the same)"
    worst = max(many)
    text += f"; above 32 rows it takes at most {worst:.2f} x the time of cuBLASLt"
    return text, "move the border of Gemv there (their bits are the same)" + (
        ", and take it for all decode batches" if worst <= 1.25 else "; keep cuBLASLt above it"
    )


def faster_products(micro: Micro, _figures: Figures, _machine: cuda_model.Machine) -> Answer | None:
    rows = [each for each in of(micro, "product") if "cublaslt_s" in each]
    if not rows:
        return None
    slower = sorted({r["m"] for r in rows if r["cublaslt_s"] >= r["gemv_s"]})
    first = min((r["m"] for r in rows if r["m"] > max(slower, default=0)), default=None)
    if first is None:
        return f"Gemv is faster somewhere up to m = {max(slower)}", (
            "raise the border of Gemv (kMaxGemvRows)"
        )
    text = f"cuBLASLt is faster for every shape from m = {first} on"
    if first >= 32:
        return text, "keep kMaxGemvRows at 32"
    return text, "take Gemm from there on if it is as fast, for the bits of Gemv; else keep 32"


def kernel_that_is_off(micro: Micro, old: str, new: str, switch: str, source: str) -> Answer | None:
    """Whether kernels whose names begin with `new` are faster than those that begin with `old`;
    the names of a pair end alike. `switch` makes them the default, `source` has them."""
    seconds = {each["name"]: each["seconds"] for each in micro if "seconds" in each}
    shapes = [name.removeprefix(new) for name in seconds if name.startswith(new)]
    ratios = {s: seconds[new + s] / seconds[old + s] for s in shapes if old + s in seconds}
    if not ratios:
        return None
    text = "; ".join(f"{shape}: {ratio:.2f} of the time" for shape, ratio in ratios.items())
    if max(ratios.values()) < 0.98:
        return text, f"make it the default ({switch})"
    return text, f"take it for the shapes that gain, or remove {source}"


def warpgroup_attention(
    micro: Micro, _figures: Figures, _machine: cuda_model.Machine
) -> Answer | None:
    old, new = "prefill_attention ", "warpgroup_prefill_attention "
    switch = "PrefersWarpgroups in prefill_attention.cu"
    return kernel_that_is_off(micro, old, new, switch, "csrc/kernels/cuda/warpgroup_attention.cu")


QUESTIONS: dict[str, Callable[[Micro, Figures, cuda_model.Machine], Answer | None]] = {
    "what an edge of a graph costs": edge,
    "what it costs with dependent launches": dependent_edge,
    "what dependent launches gain in decode of 0.6B": dependent_decode,
    "what a barrier of all blocks costs": barrier,
    "what bandwidth reads reach": reads,
    "how many loads in flight it takes": loads_in_flight,
    "what bandwidth the level-2 cache has": cached_reads,
    "whether cuBLASLt's bits depend on the number of rows": cublas_bits,
    "from how many rows on Gemm is faster than Gemv": own_products,
    "from how many rows on cuBLASLt is faster than Gemv": faster_products,
    "what warpgroups gain in attention of prompts": warpgroup_attention,
}


def decide(micro: Micro, figures: Figures, limits: dict[str, float] | None) -> list[dict[str, str]]:
    """The table, a row per question."""
    machine = cuda_model.machine_of(limits)
    out = []
    for question, answer_of in QUESTIONS.items():
        answer, following = answer_of(micro, figures, machine) or ("not measured", "")
        out.append({"question": question, "answer": answer, "next": following})
    return out
