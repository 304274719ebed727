"""Predicts how long a step takes on a GPU. Nothing here is measured; it is written down beforehand.

    python bench/cuda/model.py          # the table, for the kernels of the record "before" and now
    python bench/cuda/model.py --write  # into bench/results/cuda_model.md

A step is a chain of kernels. Each costs the edge between two kernels of a graph, the latencies of
memory that follow one another in it, and the larger of what its bytes and its operations take. The
constants of the machine are in `Machine`, those of the kernels in `Kernels`; how many loads are in
flight and how many latencies follow one another was read from machine code (cuda_sass.md beside the
table).
tools/gpu_report.py prints the predictions beside what a GPU has measured.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "bench/results/cuda_model.md"
BF16 = 2
US = 1e-6
PAGE_KEYS = 16


@dataclass(frozen=True)
class Machine:
    """An H200: the first two are of a large copy and a large product, the rest is estimated."""

    bytes_per_s: float = 4.3e12
    operations_per_s: float = 790e12
    multiprocessors: int = 132
    clock: float = 1.755e9
    edge_s: float = 1.2 * US  # from the end of a kernel of a graph to the work of the next one
    dependent_edge_s: float = 0.6 * US  # the same, where the next one's blocks wait for that end
    memory_s: float = 0.5 * US  # latency of DRAM
    loaded_memory_s: float = 0.6 * US  # the same, with other blocks reading
    cache_s: float = 0.25 * US  # latency of the L2 cache
    cache_bytes_per_s: float = 5.5e12  # that all multiprocessors get from it
    barrier_s: float = 0.15 * US  # a barrier of a block, with the work that it waits for
    transfer_s: float = 4 * US  # of a small copy between host and device, device idle
    shared_bytes_per_clock: int = 128
    warp_products_per_clock: int = 1270  # multiply-adds of mma.sync, of a multiprocessor
    reachable: float = 0.90  # of the bandwidth, by a kernel that streams


@dataclass(frozen=True)
class Kernels:
    """What the machine code of a state of the kernels says."""

    name: str
    gemv_latencies: int  # of DRAM, until the weights of the first step are there
    attention_loads: int  # of 16 bytes, in flight per thread
    attention_preloads: bool  # the first values while the softmax is computed
    min_split: int  # keys, of a split
    norm_latencies: int  # a weight behind the sum is of DRAM, too
    rope_latencies: int  # of the cache
    rope_serial_s: float  # loads of angles and divisions, one behind the other
    softmax_slots: int  # of prefill attention: issue slots of a warp and 64 keys beside products
    lists_splits: bool = False  # of decode attention, once a step; else each block counts them
    are_dependent: bool = False  # launches; the first weights are loaded in front of the edge
    activates: bool = False  # in the product of gate and up, where it is Gemv
    has_gemm: bool = False  # for decode rows; else cuBLASLt from 33 rows on
    has_rings: bool = False  # of pages, and tensor cores, in decode attention (DecodeWorker)
    long_min_split: int = 0  # keys, of a split of a row of more than SHORT_ROW keys
    has_wide_warps: bool = False  # of 32 rows, two blocks of them, in prefill attention; else of 16


BEFORE = Kernels("before", 2, 1, False, 64, 2, 4, 0.7 * US, 700)
LOADS = Kernels("loads in flight", 1, 4, True, 128, 1, 2, 0.1 * US, 460)
LISTED = replace(LOADS, name="listed splits", lists_splits=True)
DEPENDENT = replace(LISTED, name="dependent launches", are_dependent=True)
ACTIVATING = replace(DEPENDENT, name="activation in the product", activates=True)
FIXED = replace(ACTIVATING, name="one order of sums", has_gemm=True)
RINGS = replace(FIXED, name="rings of pages", has_rings=True)
WIDE_WARPS = replace(RINGS, name="32 rows per warp", softmax_slots=560, has_wide_warps=True)
LONGER = replace(WIDE_WARPS, name="longer splits", long_min_split=256)
RECORDS = [BEFORE, LOADS, LISTED, DEPENDENT, ACTIVATING, FIXED, RINGS, WIDE_WARPS]
NOW = LONGER  # no other at the lengths of the tables

SPLITS, MAX_SPLIT, SHORT_ROW = 24, 512, 1024  # of decode_items.cuh
KEYS_AT_ONCE, THREADS = 4, 256  # of decode_lanes.cuh
RING_WARPS, RING_SLOTS, RING_BLOCKS = 4, 4, 2  # of decode_worker.cuh, up to 128 elements of a head
# Of a page of keys and its values: the clocks from one to the next of a warp that is alone, its
# issue slots, and the clocks of shared memory for a byte of the page (written; keys read with two
# and values with four lanes in the same banks).
PAGE_CLOCKS, PAGE_SLOTS, PAGE_SHARED = 700, 500, 8 / 128
SCHEDULERS = 4
PRODUCT_SLOTS = 600  # of prefill attention, for 128 elements of a head
MATRIX_BYTES = 36 * 1024  # that a warp reads from shared memory for 64 keys, likewise
WIDE_SLOTS, WIDE_MATRIX_BYTES = 400, 40 * 1024  # the same of warps of 32 rows
COPIED_BYTES = 32 * 1024  # that a block writes there for 64 keys, likewise
GEMM_SHARE = 0.81  # of the peak, by cuBLASLt


def gemv_rows(n: int) -> int:
    """Up to which number of rows Gemv is taken (csrc/models/cuda/decoder_forward.cc)."""
    return 32 if n < 4096 else 16 if n < 16384 else 8


@dataclass(frozen=True)
class Tile:
    """Of gemm.cu: rows of the weight and of x, and what a warp of how many computes."""

    weight_rows: int
    x_rows: int
    warps: int
    warp_rows: int  # of the weight and of x together

    def blocks(self, rows: int, n: int) -> int:
        return math.ceil(n / self.weight_rows) * math.ceil(rows / self.x_rows)


SMALL, WIDE, LARGE = Tile(32, 64, 4, 48), Tile(128, 64, 8, 64), Tile(128, 128, 8, 96)


@dataclass(frozen=True)
class Model:
    """Sizes of a dense model."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    dim: int
    vocab: int

    @classmethod
    def of(cls, config: dict[str, Any]) -> Model:
        heads = config["num_attention_heads"]
        return cls(
            config["hidden_size"],
            config["intermediate_size"],
            config["num_hidden_layers"],
            heads,
            config["num_key_value_heads"],
            config.get("head_dim") or config["hidden_size"] // heads,
            config["vocab_size"],
        )

    @property
    def products(self) -> list[tuple[int, int]]:
        """(n, k) of a layer's matrices."""
        q, kv = self.heads * self.dim, self.kv_heads * self.dim
        return [
            (q + 2 * kv, self.hidden),
            (self.hidden, q),
            (2 * self.ffn, self.hidden),
            (self.hidden, self.ffn),
        ]

    @property
    def weights(self) -> int:
        """Elements that a step reads."""
        return self.layers * sum(n * k for n, k in self.products) + self.vocab * self.hidden

    @property
    def key_bytes(self) -> int:
        """Of a token's key and value in one layer."""
        return 2 * BF16 * self.kv_heads * self.dim


@dataclass(frozen=True)
class Predictor:
    """Seconds of kernels and steps."""

    kernels: Kernels = NOW
    machine: Machine = Machine()

    @property
    def edge(self) -> float:
        m = self.machine
        return m.dependent_edge_s if self.kernels.are_dependent else m.edge_s

    def moved(self, num_bytes: float) -> float:
        return num_bytes / (self.machine.reachable * self.machine.bytes_per_s)

    def computed(self, operations: float) -> float:
        return operations / (GEMM_SHARE * self.machine.operations_per_s)

    def product(
        self, rows: int, n: int, k: int, weight_bits: float = 16, fixed: bool = True
    ) -> float:
        """As the decoder chooses; `fixed`: in one order of sums for any number of rows."""
        if not self.kernels.has_gemm or not fixed:
            few = rows <= 32
            return (self.gemv if few else self.cublas)(rows, n, k, weight_bits)
        few = rows <= gemv_rows(n)
        return (self.gemv if few else self.gemm)(rows, n, k, weight_bits)

    def cublas(self, rows: int, n: int, k: int, weight_bits: float = 16) -> float:
        """Three stages of its pipeline, and an edge of the usual kind."""
        m = self.machine
        num_bytes = n * k * weight_bits / 8 + BF16 * rows * (n + k)
        work = max(self.moved(num_bytes), self.computed(2.0 * rows * n * k))
        return m.edge_s + 3 * m.memory_s + m.cache_s + 2 * m.barrier_s + work

    def gemv(self, rows: int, n: int, k: int, weight_bits: float = 16) -> float:
        """Each block of 16 rows of the weight reads all of x, from the cache."""
        m = self.machine
        weights = n * k * weight_bits / 8
        cached = (weights + BF16 * rows * k * n / 16) / m.cache_bytes_per_s if rows > 8 else 0.0
        work = max(self.moved(weights + BF16 * rows * (n + k)), cached)
        start = self.kernels.gemv_latencies - self.kernels.are_dependent
        return self.edge + start * m.memory_s + m.cache_s + 2 * m.barrier_s + work

    def gemm(self, rows: int, n: int, k: int, weight_bits: float = 16) -> float:
        """The slowest of memory, cache, shared memory and tensor cores."""
        m = self.machine
        tile = self.tile(rows, n)
        blocks, x_tiles = tile.blocks(rows, n), math.ceil(rows / tile.x_rows)
        weights = n * k * weight_bits / 8
        cached = x_tiles * weights + BF16 * rows * k * math.ceil(n / tile.weight_rows)
        # Of a stage of 64 k: what is written to shared memory and what the warps read from it.
        shared = BF16 * 64 * (tile.weight_rows + tile.x_rows + tile.warps * tile.warp_rows)
        clocks = max(
            shared / m.shared_bytes_per_clock,
            tile.weight_rows * tile.x_rows * 64 / m.warp_products_per_clock,
        )
        stage = clocks / m.clock + 0.2 * m.barrier_s
        work = max(
            self.moved(weights + BF16 * rows * (n + k)),
            cached / m.cache_bytes_per_s,
            math.ceil(blocks / m.multiprocessors) * math.ceil(k / 64) * stage,
        )
        return self.edge + m.memory_s + m.cache_s + 3 * m.barrier_s + work

    def tile(self, rows: int, n: int) -> Tile:
        def cost(tile: Tile) -> int:
            blocks, of_tile = tile.blocks(rows, n), tile.weight_rows + tile.x_rows
            waves = math.ceil(blocks / self.machine.multiprocessors)
            shared = waves * (of_tile + tile.warps * tile.warp_rows)
            return max(shared, blocks * of_tile * 5 // self.machine.multiprocessors)

        return min((LARGE, WIDE, SMALL), key=cost)

    def norm(self, rows: int, hidden: int) -> float:
        m = self.machine
        start = m.cache_s + (self.kernels.norm_latencies - 1) * m.memory_s
        return self.edge + start + 2 * m.barrier_s + self.moved(12 * rows * hidden)

    def rope(self, rows: int, model: Model) -> float:
        m, k = self.machine, self.kernels
        width = (model.heads + 2 * model.kv_heads) * model.dim
        start = k.rope_latencies * m.cache_s + k.rope_serial_s
        return self.edge + start + self.moved(2 * BF16 * rows * width)

    def activation(self, rows: int, ffn: int) -> float:
        m = self.machine
        return self.edge + m.cache_s + 4 * m.barrier_s + self.moved(3 * BF16 * rows * ffn)

    def split(self, keys: int) -> int:
        split = self.kernels.min_split
        if keys > SHORT_ROW:
            split = max(split, self.kernels.long_min_split)
        while split < MAX_SPLIT and split * SPLITS < keys:
            split *= 2
        return split

    def item(self, keys: int, dim: int) -> float:
        """Of a block of LanesWorker: `keys` of one head, from the scores to the parts."""
        m, k = self.machine, self.kernels
        lanes = 8 if dim <= 64 else 16 if dim <= 128 else 32
        rounds = math.ceil(keys / (THREADS // lanes * KEYS_AT_ONCE))
        serial = math.ceil(KEYS_AT_ONCE / k.attention_loads)
        load = serial * (m.cache_s + m.loaded_memory_s)  # page numbers, then rows
        hidden = load if k.attention_preloads else 0.0
        return (2 * rounds) * load - min(hidden, 2 * m.barrier_s) + 5 * m.barrier_s

    def ring_item(self, keys: int, dim: int, is_alone: bool) -> float:
        """Of a block of DecodeWorker, whose pages are there: to the parts."""
        m, part = self.machine, (dim + 128) / 256
        pages = math.ceil(math.ceil(keys / PAGE_KEYS) / RING_WARPS)  # of a warp
        warps = 1 if is_alone else RING_BLOCKS * RING_WARPS // SCHEDULERS
        clocks = pages * part * max(PAGE_CLOCKS, warps * PAGE_SLOTS)
        return clocks / m.clock + 3 * m.barrier_s

    def decode_attention(self, rows: int, keys: int, model: Model) -> float:
        """Of one layer."""
        m, k = self.machine, self.kernels
        split = min(self.split(keys), max(keys, 1))
        splits = math.ceil(keys / split)
        items = rows * splits * model.kv_heads
        parts = rows * splits * model.heads * model.dim * 8 if splits > 1 else 0
        moved = self.moved(rows * keys * model.key_bytes + 2 * parts)
        merge = 2 * m.cache_s + splits * 0.1 * US if splits > 1 else 0.0
        if k.has_rings:
            at_once = m.multiprocessors * RING_BLOCKS
            waves = max(1.0, items / at_once)
            item = self.ring_item(split, model.dim, is_alone=items <= m.multiprocessors)
            shared = rows * keys * model.key_bytes / 2 * PAGE_SHARED / m.clock / m.multiprocessors
            # The split, the numbers of its pages, the first of them: once, not for each item.
            start = 2 * m.cache_s + m.loaded_memory_s
            return self.edge + start + merge + max(moved, shared, waves * item)
        at_once = m.multiprocessors * (3 if model.heads // model.kv_heads <= 4 else 2)
        waves = max(1.0, items / at_once)
        # A split is read from the list, or found by counting those of all rows.
        count = m.cache_s if k.lists_splits else 2 * m.cache_s + 3 * m.barrier_s
        moved += m.cache_s + m.loaded_memory_s  # until the first bytes come
        return self.edge + count + merge + max(moved, waves * self.item(split, model.dim))

    def list_splits(self) -> float:
        """Once a step; for one window."""
        m = self.machine
        if not self.kernels.lists_splits:
            return 0.0
        return self.edge + 3 * m.cache_s + 3 * m.barrier_s

    def prefill_attention(self, rows: int, model: Model) -> float:
        """Products and softmax follow one another, between barriers; so do copies of one block.

        That a scheduler has two wide warps, of which one multiplies while the other computes its
        softmax, is left out.
        """
        m, part = self.machine, model.dim / 128
        pairs = rows * (rows + 64) / 2 * model.heads
        if self.kernels.has_wide_warps:
            slots = self.kernels.softmax_slots + WIDE_SLOTS * part
            shared = (4 * WIDE_MATRIX_BYTES + COPIED_BYTES) * part / m.shared_bytes_per_clock
            products = 2 * 128 * 64 * model.dim / m.warp_products_per_clock
            step = (slots + max(shared, products)) / m.clock + 0.4 * m.barrier_s
            return self.edge + pairs / (128 * 64) * step / m.multiprocessors
        slots = self.kernels.softmax_slots + PRODUCT_SLOTS * part
        step = 2 * slots / m.clock  # two warps share a scheduler
        step += 8 * MATRIX_BYTES * part / m.shared_bytes_per_clock / m.clock
        return self.edge + pairs / (128 * 64) * step / m.multiprocessors

    def around(self, rows: int, model: Model) -> float:
        """Embedding, last norm, head, the two launches of sampling, and copies."""
        m = self.machine
        head = self.product(rows, model.vocab, model.hidden)
        sampling = 2 * (self.edge + 3 * m.cache_s) + self.moved(8 * rows * model.vocab)
        ends = self.edge + m.memory_s + self.norm(rows, model.hidden)
        return head + sampling + ends + 3 * m.transfer_s

    def layer(self, rows: int, model: Model, weight_bits: float = 16, fixed: bool = True) -> float:
        """All but attention."""
        products = sum(self.product(rows, n, k, weight_bits, fixed) for n, k in model.products)
        norms = 2 * self.norm(rows, model.hidden)
        layer = products + norms + self.rope(rows, model)
        most = gemv_rows(2 * model.ffn) if self.kernels.has_gemm and fixed else 32
        if self.kernels.activates and rows <= most:  # the rest is in the shadow of other blocks
            return layer + self.machine.barrier_s
        return layer + self.activation(rows, model.ffn)

    def decode(self, rows: int, keys: int, model: Model, weight_bits: float = 16) -> float:
        attention = self.decode_attention(rows, keys, model)
        layers = model.layers * (self.layer(rows, model, weight_bits) + attention)
        return layers + self.list_splits() + self.around(rows, model)

    def prefill(self, rows: int, model: Model, fixed: bool = False) -> float:
        attention = self.prefill_attention(rows, model)
        layer = self.layer(rows, model, fixed=fixed)
        return model.layers * (layer + attention) + self.around(1, model)

    def serving(self, requests: int, shortest: int, longest: int, model: Model) -> float:
        """Output tokens per second of requests that begin together, all lengths equally often."""
        spread = [
            shortest + (longest - shortest) * i // max(requests - 1, 1) for i in range(requests)
        ]
        prompt = sum(spread) // requests
        seconds = requests * prompt / 8192 * self.prefill(8192, model)
        for done in range(longest):
            rows = sum(length > done for length in spread)
            if rows > 0:
                seconds += self.decode(rows, prompt + done, model)
        return sum(spread) / seconds

    def ideal(self, rows: int, keys: int, model: Model, weight_bits: float = 16) -> float:
        """The least that the machine needs for a step of decode."""
        num_bytes = model.weights * weight_bits / 8 + rows * keys * model.layers * model.key_bytes
        operations = 2.0 * rows * model.weights
        return max(num_bytes / self.machine.bytes_per_s, operations / self.machine.operations_per_s)

    def ideal_prefill(self, rows: int, model: Model) -> float:
        linear = 2.0 * rows * (model.weights - model.vocab * model.hidden)
        attention = 2.0 * rows * rows * model.heads * model.dim * model.layers
        return (linear + attention) / self.machine.operations_per_s


MODELS = {
    "0.6B": Model(1024, 3072, 28, 16, 8, 128, 151936),
    "1B": Model(2048, 8192, 16, 32, 8, 64, 128256),
    "8B": Model(4096, 14336, 32, 32, 8, 128, 128256),
}
KERNEL_SHAPES = {"qwen3-0.6b": "0.6B", "llama-3.2-1b": "1B", "llama-3.1-8b": "8B"}
BITS = {"bf16": 16, "q8": 8.25, "q4": 4.5}


def predict_kernel(name: str, predictor: Predictor | None = None) -> float | None:
    """Of a row of bench/cuda/kernels.cc, whose launches follow one another in a graph."""
    predictor = predictor or Predictor()
    if found := re.fullmatch(r"decode_attention (\S+) rows=(\d+) length=(\d+)", name):
        model = MODELS[KERNEL_SHAPES[found[1]]]
        return predictor.decode_attention(int(found[2]), int(found[3]), model)
    if found := re.fullmatch(r"prefill_attention (\S+) length=(\d+)", name):
        return predictor.prefill_attention(int(found[2]), MODELS[KERNEL_SHAPES[found[1]]])
    if found := re.fullmatch(r"add_norm (\d+) rows=(\d+)", name):
        return predictor.norm(int(found[2]), int(found[1]))
    if found := re.fullmatch(r"activate (\d+) rows=(\d+)", name):
        return predictor.activation(int(found[2]), int(found[1]))
    if found := re.fullmatch(r"gemv (\w+) (\S+) (\w+) m=(\d+)", name):
        model = MODELS[KERNEL_SHAPES[found[2]]]
        places = ["qkv", "out", "gate_up", "down"]
        size = (model.vocab, model.hidden)
        if found[3] != "head":
            size = model.products[places.index(found[3])]
        return predictor.product(int(found[4]), *size, BITS[found[1]])
    return None


def machine_of(limits: dict[str, float] | None) -> Machine:
    """With the limits that were measured, if there are any."""
    return replace(Machine(), **(limits or {}))


def predict_figure(
    figure: str, side: str, key: str, limits: dict[str, float] | None = None
) -> float | None:
    """Of a target of tools/gpu_report.py; `limits` are those measured in the same run."""
    machine = machine_of(limits)
    predictor = Predictor(NOW, machine)
    if found := re.fullmatch(r"decode (\S+)", figure):
        model, bits = MODELS[found[1].upper()], BITS["q4" if side.endswith("q4") else "bf16"]
        return predictor.ideal(1, 256, model, bits) / predictor.decode(1, 256, model, bits)
    if figure == "attention 8b":
        model = MODELS["8B"]
        least = 64 * 4096 * model.key_bytes / machine.bytes_per_s
        return least / predictor.decode_attention(64, 4096, model)
    if figure == "prefill 8b":
        model = MODELS["8B"]
        return predictor.ideal_prefill(8192, model) / predictor.prefill(8192, model)
    if figure == "serving 0.6b" and key == "output_tokens_per_s":
        return predictor.serving(256, 100, 1024, MODELS["0.6B"])
    return None


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
        "A layer's four products, us: Gemv (in pieces of 32 rows), Gemm, cuBLASLt. The decoder "
        "takes Gemv up to 8 rows, up to 16 where the weight has less than 16,384 rows, and up to "
        "32 where it has less than 4,096:",
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
                    now.cublas(rows, n, k),
                )
                cells.append(", ".join(f"{1e6 * seconds:.0f}" for seconds in times))
            lines.append(f"| {name} | {n:,} x {k:,} | " + " | ".join(cells) + " |")
    return lines


def table() -> str:
    """All predictions, before and now, as Markdown."""
    before, now = Predictor(BEFORE), Predictor(NOW)
    lines = [
        "# Predicted times on an H200",
        "",
        "Written by `python bench/cuda/model.py --write`. **Nothing here is measured**: the model "
        "and its constants are in that file. A share is the least time that bandwidth or peak "
        "allows, divided by the prediction. Decode is at a context of 256 tokens for batch 1, else "
        "1,024; weights and KV are bfloat16.",
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
        "at once, or rows lose their bits from one batch to another:",
        "",
        "| | 0.6B, batch 1 | 8 | 1B, 1 | 8 | 8B, 1 | 8 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for fused in ("norms", "rope and writing of keys and values"):
        shares = []
        for model in MODELS.values():
            for rows, keys in ((1, 256), (8, 1024)):
                norms = 2 * now.norm(rows, model.hidden)
                one = norms if fused == "norms" else now.rope(rows, model)
                shares.append(100 * model.layers * one / now.decode(rows, keys, model))
        lines.append(f"| {fused} | " + " | ".join(f"{share:.1f}" for share in shares) + " |")
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
            predictor = Predictor(replace(RINGS, min_split=split))
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
                shortest = [Predictor(replace(RINGS, min_split=split)) for split in (128, 256)]
                short, long = (p.decode(rows, keys, model) for p in shortest)
                cells.append(f"{100 * (long / short - 1):+.1f}")
        lines.append(f"| {keys:,} | " + " | ".join(cells) + " |")
    rates = [p.serving(256, 100, 1024, MODELS["0.6B"]) for p in (before, now)]
    lines += [
        "",
        "256 requests at once on 0.6B, 100 to 1,024 tokens in and out, output tokens per second: "
        f"{rates[0]:,.0f} before, {rates[1]:,.0f} now.",
        "",
    ]
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
