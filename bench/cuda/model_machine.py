"""The constants that the predictions of model.py are made of: of a machine, and of kernels.

Those of the machine are in `Machine`, those of the kernels in `Kernels`; how many loads are in
flight and how many latencies follow one another was read from machine code (cuda_sass.md beside the
table).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

BF16 = 2
US = 1e-6
PAGE_KEYS = 16


@dataclass(frozen=True)
class Machine:
    """An H200: the first two are of a large copy and a large product. Edges and what is reachable
    were measured on an H100 (bench/results/gpu.md); the rest is estimated."""

    bytes_per_s: float = 4.3e12
    operations_per_s: float = 790e12
    multiprocessors: int = 132
    clock: float = 1.755e9
    edge_s: float = 0.9 * US  # from the end of a kernel of a graph to the work of the next one
    dependent_edge_s: float = 0.6 * US  # the same, where the next one's blocks wait for that end
    memory_s: float = 0.5 * US  # latency of DRAM
    loaded_memory_s: float = 0.6 * US  # the same, with other blocks reading
    cache_s: float = 0.25 * US  # latency of the L2 cache
    cache_bytes_per_s: float = 5.5e12  # that all multiprocessors get from it
    barrier_s: float = 0.15 * US  # a barrier of a block, with the work that it waits for
    transfer_s: float = 4 * US  # of a small copy between host and device, device idle
    shared_bytes_per_clock: int = 128
    warp_products_per_clock: int = 1270  # multiply-adds of mma.sync, of a multiprocessor
    reachable: float = 1.0  # of the bandwidth, by a kernel that streams


H200 = Machine()


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
    has_worker: bool = False  # of decode attention on tensor cores (DecodeWorker)
    long_min_split: int = 0  # keys, of a split of a row of more than SHORT_ROW keys
    has_wide_warps: bool = False  # of 32 rows, two blocks of them, in prefill attention; else of 16
    norms_in_products: bool = False  # of one row, where has_norm_in_product
    has_warpgroups: bool = False  # products of more than 64 rows on Hopper's instructions


BEFORE = Kernels("before", 2, 1, False, 64, 2, 4, 0.7 * US, 700)
LOADS = Kernels("loads in flight", 1, 4, True, 128, 1, 2, 0.1 * US, 460)
LISTED = replace(LOADS, name="listed splits", lists_splits=True)
DEPENDENT = replace(LISTED, name="dependent launches", are_dependent=True)
ACTIVATING = replace(DEPENDENT, name="activation in the product", activates=True)
FIXED = replace(ACTIVATING, name="one order of sums", has_gemm=True)
WORKER = replace(FIXED, name="attention on tensor cores", has_worker=True)
WIDE_WARPS = replace(WORKER, name="32 rows per warp", softmax_slots=560, has_wide_warps=True)
LONGER = replace(WIDE_WARPS, name="longer splits", long_min_split=256)
NORMS = replace(LONGER, name="norms in products", norms_in_products=True)
WARPGROUPS = replace(NORMS, name="products of warpgroups", has_warpgroups=True)
NOW = WARPGROUPS
RECORDS = [BEFORE, LOADS, LISTED, DEPENDENT, ACTIVATING, FIXED, WORKER, WIDE_WARPS, LONGER, NORMS]
RECORDS.append(WARPGROUPS)

SPLITS, MAX_SPLIT, SHORT_ROW = 24, 512, 1024  # of decode_items.cuh
KEYS_AT_ONCE, THREADS = 4, 256  # of decode_lanes.cuh
WORKER_WARPS, WORKER_BLOCKS = 4, 2  # of decode_worker.cuh
# Of the pages that a warp takes at a time, of keys and values: how many, and the clocks from their
# arrival to the loads of the next ones.
WORKER_PAGES, PAGES_CLOCKS = 2, 1000
# Of a page of 8 bits: the clocks that a multiprocessor needs for its instructions (an H100's).
PAGE_CLOCKS_OF_8_BITS = 420
PRODUCT_SLOTS = 600  # of prefill attention, for 128 elements of a head
MATRIX_BYTES = 36 * 1024  # that a warp reads from shared memory for 64 keys, likewise
WIDE_SLOTS, WIDE_MATRIX_BYTES = 400, 40 * 1024  # the same of warps of 32 rows
COPIED_BYTES = 32 * 1024  # that a block writes there for 64 keys, likewise
GEMM_SHARE = 0.81  # of the peak, by cuBLASLt
# kNormInProduct and kNormInQuantizedProduct of decoder_forward.cc.
NORM_IN_PRODUCT, NORM_IN_QUANTIZED_PRODUCT = 4096, 2048
NORM_SERIAL_S = 0.8 * US  # of a row: sums of lanes and warps, one behind the other (an H100's)


def has_norm_in_product(hidden: int, weight_bits: float) -> bool:
    """Whether the decoder has the norm of one row in the product behind it."""
    return hidden <= NORM_IN_PRODUCT and (weight_bits == 16 or hidden > NORM_IN_QUANTIZED_PRODUCT)


def gemv_rows(n: int) -> int:
    """Up to which number of rows Gemv is taken where there is no BatchGemv, which came later."""
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
class WarpgroupTile:
    """Of warpgroup_gemm.cu, with the times of a stage of 64 k on an H100."""

    weight_rows: int
    x_rows: int
    latency_s: float
    work_s: float  # of each block of a multiprocessor

    def stage_s(self, rows: int, n: int, multiprocessors: int) -> float:
        blocks = math.ceil(n / self.weight_rows) * math.ceil(rows / self.x_rows)
        return max(self.latency_s, math.ceil(blocks / multiprocessors) * self.work_s)


WARPGROUP_TILES = (
    WarpgroupTile(128, 128, 0.58 * US, 0.62 * US),
    WarpgroupTile(128, 64, 0.45 * US, 0.47 * US),
    WarpgroupTile(64, 64, 0.34 * US, 0.257 * US),
    WarpgroupTile(64, 32, 0.26 * US, 0.195 * US),
)
