"""Predicts how long a step takes on a GPU. Kernels were not measured for it; it was written first.

A step is a chain of kernels. Each costs the edge between two kernels of a graph, the latencies of
memory that follow one another in it, and the larger of what its bytes and its operations take. The
constants are in model_machine.py, the sizes of models in model_sizes.py.
model_table.py writes the tables, and tools/gpu_report.py prints the predictions beside what a GPU
has measured.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from model_machine import (
    BF16,
    COPIED_BYTES,
    GEMM_SHARE,
    H200,
    KEYS_AT_ONCE,
    LARGE,
    MATRIX_BYTES,
    MAX_SPLIT,
    NORM_SERIAL_S,
    NOW,
    PAGE_CLOCKS_OF_8_BITS,
    PAGE_KEYS,
    PAGES_CLOCKS,
    PRODUCT_SLOTS,
    SHORT_ROW,
    SMALL,
    SPLITS,
    THREADS,
    US,
    WARPGROUP_TILES,
    WIDE,
    WIDE_MATRIX_BYTES,
    WIDE_SLOTS,
    WORKER_BLOCKS,
    WORKER_PAGES,
    WORKER_WARPS,
    Kernels,
    Machine,
    Tile,
    gemv_rows,
    has_norm_in_product,
)
from model_sizes import (
    BITS,
    KERNEL_SHAPES,
    LATENT_SHAPES,
    MODELS,
    STATE_SHAPES,
    LatentHeads,
    Model,
    StateLayer,
)


@dataclass(frozen=True)
class Predictor:
    """Seconds of kernels and steps."""

    kernels: Kernels = NOW
    machine: Machine = H200

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
        if self.kernels.has_warpgroups and rows > 64 and weight_bits == 16:
            return self.warpgroup_gemm(rows, n, k)
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

    def norm_gemv(self, n: int, k: int, weight_bits: float = 16) -> float:
        """Of one row, which each block reads in float32 and normalizes: with two barriers more."""
        m = self.machine
        walkers = m.multiprocessors * (3 if weight_bits < 8 else 2)
        cached = 4.0 * k * min(math.ceil(n / 16), walkers) / m.cache_bytes_per_s
        return self.gemv(1, n, k, weight_bits) + 2 * m.barrier_s + cached

    def around_norm(self, n: int, hidden: int, weight_bits: float, fused: bool) -> float:
        """A product of `hidden` columns and rows, the norm behind it, and a product of its row."""
        before = self.gemv(1, hidden, hidden, weight_bits)
        if fused:  # the first one waits for the residual at its end
            return before + self.machine.cache_s + self.norm_gemv(n, hidden, weight_bits)
        return before + self.norm(1, hidden) + self.gemv(1, n, hidden, weight_bits)

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

    def warpgroup_gemm(self, rows: int, n: int, k: int) -> float:
        """Of weights that are not quantized."""
        m = self.machine
        stage = min(tile.stage_s(rows, n, m.multiprocessors) for tile in WARPGROUP_TILES)
        work = max(self.moved(BF16 * (n * k + rows * (n + k))), math.ceil(k / 64) * stage)
        return self.edge + m.memory_s + m.cache_s + 4 * m.barrier_s + work

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
        serial = start + 2 * m.barrier_s + NORM_SERIAL_S
        return self.edge + serial + self.moved(12 * rows * hidden)

    def rope(self, rows: int, model: Model) -> float:
        m, k = self.machine, self.kernels
        width = (model.heads + 2 * model.kv_heads) * model.dim
        start = k.rope_latencies * m.cache_s + k.rope_serial_s
        return self.edge + start + self.moved(2 * BF16 * rows * width)

    def states(self, rows: int, layer: StateLayer) -> float:
        """Of a step of decode, each of whose rows reads a state and writes one."""
        m = self.machine
        serial = layer.memory_latencies * m.memory_s + layer.cache_latencies * m.cache_s
        serial += layer.barriers * m.barrier_s
        moved = self.moved(rows * (8 * layer.state + BF16 * layer.row))
        return layer.launches * self.edge + serial + moved

    def activation(self, rows: int, ffn: int) -> float:
        m = self.machine
        return self.edge + m.cache_s + 4 * m.barrier_s + self.moved(3 * BF16 * rows * ffn)

    def split(self, keys: int) -> int:
        split = self.kernels.min_split
        if keys > SHORT_ROW or (self.kernels.long_min_split and keys <= 2 * split):
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

    def worker_item(self, keys: int) -> float:
        """Of a block of DecodeWorker: to the parts."""
        m = self.machine
        steps = math.ceil(math.ceil(keys / PAGE_KEYS) / (WORKER_WARPS * WORKER_PAGES))
        return steps * (m.loaded_memory_s + PAGES_CLOCKS / m.clock) + 3 * m.barrier_s

    def decode_attention(self, rows: int, keys: int, model: Model) -> float:
        """Of one layer."""
        m, k = self.machine, self.kernels
        split = min(self.split(keys), max(keys, 1))
        splits = math.ceil(keys / split)
        items = rows * splits * model.kv_heads
        parts = rows * splits * model.heads * model.dim * 8 if splits > 1 else 0
        moved = self.moved(rows * keys * model.key_bytes + 2 * parts)
        merge = 2 * m.cache_s + splits * 0.1 * US if splits > 1 else 0.0
        if k.has_worker:
            waves = max(1.0, items / (m.multiprocessors * WORKER_BLOCKS))
            if model.key_bits < 16:
                pages = rows * math.ceil(keys / PAGE_KEYS) * model.kv_heads
                clocks = pages / m.multiprocessors * PAGE_CLOCKS_OF_8_BITS * model.dim / 128
                moved = max(moved, clocks / m.clock)
            # The split and the numbers of its pages, each with what leads to it: once.
            start = 4 * m.cache_s
            # Parts are stored and counted, then loaded eight at a time.
            merge = (7 + math.ceil(splits / 8)) * m.cache_s if splits > 1 else 0.0
            return self.edge + start + merge + max(moved, waves * self.worker_item(split))
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

    def latent_decode_attention(self, rows: int, keys: int, model: LatentHeads) -> float:
        """Of one layer, with the kernel that merges splits."""
        m = self.machine
        split = min(self.split(keys), max(keys, 1))
        splits = math.ceil(keys / split)
        items = rows * splits * math.ceil(model.heads / model.rows)
        item = math.ceil(split / model.STEP) * model.step(m, model.rows)
        item += 4 * m.cache_s + m.loaded_memory_s  # until its first keys are there
        waves = max(1.0, items / (m.multiprocessors * 32 // model.rows))
        parts = rows * splits * model.heads * model.value_dim * 4 if splits > 1 else 0
        merge = self.edge + m.cache_s
        if splits > 1:
            merge += math.ceil(splits / 8) * m.cache_s + parts / m.cache_bytes_per_s
        work = max(self.moved(rows * keys * model.key_bytes + parts), waves * item)
        return self.edge + m.cache_s + work + merge

    def latent_prefill_attention(self, rows: int, model: LatentHeads) -> float:
        m = self.machine
        steps = rows * (rows + model.STEP) / 2 * model.heads / (32 * model.STEP)
        return self.edge + steps * model.step(m, 32) / m.multiprocessors

    def around(self, rows: int, model: Model) -> float:
        """Embedding, last norm, head, the three launches of sampling, and copies."""
        m = self.machine
        head = self.product(rows, model.vocab, model.hidden)
        sampling = 3 * (self.edge + 3 * m.cache_s) + self.moved(8 * rows * model.vocab)
        ends = self.edge + m.memory_s + self.norm(rows, model.hidden)
        return head + sampling + ends + 3 * m.transfer_s

    def layer(self, rows: int, model: Model, weight_bits: float = 16, fixed: bool = True) -> float:
        """All but attention."""
        products = sum(self.product(rows, n, k, weight_bits, fixed) for n, k in model.products)
        norms = 2 * self.norm(rows, model.hidden)
        in_products = self.kernels.norms_in_products and has_norm_in_product(
            model.hidden, weight_bits
        )
        if in_products and rows == 1:
            norms = sum(
                self.around_norm(n, model.hidden, weight_bits, fused=True)
                - self.around_norm(n, model.hidden, weight_bits, fused=False)
                + self.norm(1, model.hidden)
                for n in (model.products[0][0], model.products[2][0])
            )
        layer = products + norms + self.rope(rows, model)
        most = gemv_rows(2 * model.ffn) if self.kernels.has_gemm and fixed else 32
        if self.kernels.activates and rows <= most:  # the rest is in the shadow of other blocks
            return layer + self.machine.barrier_s
        return layer + self.activation(rows, model.ffn)

    def decode(self, rows: int, keys: int, model: Model, weight_bits: float = 16) -> float:
        layer = self.layer(rows, model, weight_bits) + self.decode_attention(rows, keys, model)
        return model.layers * layer + self.list_splits() + self.around(rows, model)

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


def predict_kernel(name: str, predictor: Predictor | None = None) -> float | None:
    """Of a row of bench/cuda/kernels.cc, whose launches follow one another in a graph."""
    predictor = predictor or Predictor()
    if found := re.fullmatch(r"decode_attention (fp8 )?(\S+) rows=(\d+) length=(\d+)", name):
        rows, keys = int(found[3]), int(found[4])
        if latents := LATENT_SHAPES.get(found[2]):
            of_type = latents.with_float8_keys() if found[1] else latents
            return predictor.latent_decode_attention(rows, keys, of_type)
        model = MODELS[KERNEL_SHAPES[found[2]]]
        if found[1]:
            model = model.with_float8_keys()
        return predictor.decode_attention(rows, keys, model)
    if found := re.fullmatch(r"prefill_attention (\S+) length=(\d+)", name):
        if latents := LATENT_SHAPES.get(found[1]):
            return predictor.latent_prefill_attention(int(found[2]), latents)
        return predictor.prefill_attention(int(found[2]), MODELS[KERNEL_SHAPES[found[1]]])
    if (found := re.fullmatch(r"(\S+ \S+) rows=(\d+)", name)) and found[1] in STATE_SHAPES:
        return predictor.states(int(found[2]), STATE_SHAPES[found[1]])
    if found := re.fullmatch(r"add_norm (\d+) rows=(\d+)", name):
        return predictor.norm(int(found[2]), int(found[1]))
    if found := re.fullmatch(r"norm (separate|fused) (\w+) (\S+) (qkv|gate_up)", name):
        model = MODELS[KERNEL_SHAPES[found[3]]]
        n = model.products[0 if found[4] == "qkv" else 2][0]
        return predictor.around_norm(n, model.hidden, BITS[found[2]], found[1] == "fused")
    if found := re.fullmatch(r"activate (\d+) rows=(\d+)", name):
        return predictor.activation(int(found[2]), int(found[1]))
    if found := re.fullmatch(r"(?:gemv|warpgroup_gemm) (\w+) (\S+) (\w+) m=(\d+)", name):
        model = MODELS[KERNEL_SHAPES[found[2]]]
        places = ["qkv", "out", "gate_up", "down"]
        size = (model.vocab, model.hidden)
        if found[3] != "head":
            size = model.products[places.index(found[3])]
        return predictor.product(int(found[4]), *size, BITS[found[1]])
    return None


def machine_of(limits: dict[str, Any] | None) -> Machine:
    """With the limits that were measured, if there are any."""
    return replace(H200, **(limits or {}))


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
        model = MODELS["0.6B"]
        if "float8" in side:
            model = model.with_float8_keys()
        return predictor.serving(256, 100, 1024, model)
    return None
