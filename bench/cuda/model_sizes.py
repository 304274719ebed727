"""Sizes of models, as the predictions of model.py need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from model_machine import Machine


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
    key_bits: float = 16  # of an element of keys and values

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
    def key_bytes(self) -> float:
        """Of a token's key and value in one layer."""
        return 2 * self.key_bits / 8 * self.kv_heads * self.dim

    def with_float8_keys(self) -> Model:
        """With 8 bits for each element of keys and values, and a scale for each head."""
        return replace(self, key_bits=8 + 32 / self.dim)


@dataclass(frozen=True)
class LatentHeads:
    """Of latent attention, with the constants of latent_worker.cuh."""

    heads: int
    key_dim: int = 576
    value_dim: int = 512
    key_bits: float = 16

    # Keys of a step, and the clocks of a multiprocessor that widen them from 8 bits.
    STEP, WIDENING = 32, 360

    @property
    def rows(self) -> int:
        """Query heads of an item of decode."""
        return 16 if self.heads <= 16 else 32

    @property
    def key_bytes(self) -> float:
        return self.key_bits / 8 * self.key_dim

    def with_float8_keys(self) -> LatentHeads:
        return replace(self, key_bits=8 + 32 / self.key_dim)

    def step(self, machine: Machine, rows: int) -> float:
        """Seconds of a block: products, and the barriers in front of each of three parts."""
        products = rows * self.STEP * (self.key_dim + self.value_dim)
        seconds = products / machine.warp_products_per_clock / machine.clock + 3 * machine.barrier_s
        if self.key_bits < 16:
            seconds += self.WIDENING / machine.clock + machine.barrier_s
        return seconds


@dataclass(frozen=True)
class StateLayer:
    """A layer with a state in place of keys and values: floats of a state, elements of a row that
    its kernels read and write, and what follows one another in its launches: latencies of DRAM (of
    a row's slice, then of its state), of what a kernel before has left in the cache, and
    barriers."""

    state: int
    row: int
    launches: int
    memory_latencies: int
    cache_latencies: int
    barriers: int

    @staticmethod
    def of_heads(state: int, row: int) -> StateLayer:
        return StateLayer(state, row, 3, 3, 5, 6)

    @staticmethod
    def mamba(heads: int) -> StateLayer:
        """With heads of 64 elements, 128 rows of a state, and one group."""
        values, keys = 64 * heads, 128
        channels = values + 2 * keys
        return StateLayer.of_heads(values * keys + 3 * channels, 2 * values + channels + heads)

    @staticmethod
    def delta(key_heads: int, value_heads: int, dim: int) -> StateLayer:
        values = value_heads * dim
        channels = values + 2 * key_heads * dim
        return StateLayer.of_heads(values * dim + 3 * channels, 2 * values + channels)


MODELS = {
    "0.6B": Model(1024, 3072, 28, 16, 8, 128, 151936),
    "1B": Model(2048, 8192, 16, 32, 8, 64, 128256),
    "8B": Model(4096, 14336, 32, 32, 8, 128, 128256),
}
KERNEL_SHAPES = {"qwen3-0.6b": "0.6B", "llama-3.2-1b": "1B", "llama-3.1-8b": "8B"}
LATENT_SHAPES = {"deepseek-v2-lite": LatentHeads(16), "glm-4.7-flash": LatentHeads(20)}
STATE_SHAPES = {
    "short_convolution lfm2-1.2b": StateLayer(2 * 2048, 4 * 2048, 1, 1, 2, 1),
    "mamba granite-4-h-tiny": StateLayer.mamba(48),
    "mamba granite-4-h-small": StateLayer.mamba(128),
    "delta_rule qwen3-next": StateLayer.delta(16, 32, 128),
}
BITS = {"bf16": 16, "fp8": 8.5, "q8": 8.25, "q4": 4.5, "nvfp4": 5, "q8_0": 8.5, "q4_k": 5}
