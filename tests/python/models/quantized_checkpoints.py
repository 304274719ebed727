"""Quantized checkpoints made from float ones, in numpy, and what their stored tensors mean.

For each format there is a writer (any quantizer will do: the values need only be legal) and a
reference dequantization, written from the format's description. A writer returns tensors; the
references read nothing but tensors, so that neither can hide a mistake of the other.

Matrices are [rows, columns] as in a Hugging Face checkpoint: y = W x.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Tensors = dict[str, np.ndarray]  # bfloat16 as its bits, in uint16
WEIGHTS = "model.safetensors"
DTYPES = {
    "F32": "f4", "F16": "f2", "BF16": "u2", "F64": "f8", "I64": "i8", "I32": "i4", "I8": "i1",
    "F8_E4M3": "V1", "U8": "u1",
}  # fmt: skip
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # column of the i-th nibble of a word


def load_file(path: Path) -> Tensors:
    content = path.read_bytes()
    end = 8 + struct.unpack("<Q", content[:8])[0]
    tensors = {}
    for name, entry in json.loads(content[8:end]).items():
        if name == "__metadata__":
            continue
        begin, stop = (end + offset for offset in entry["data_offsets"])
        values = np.frombuffer(content[begin:stop], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def save_file(tensors: Tensors, path: Path) -> None:
    names = {np.dtype(code): name for name, code in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, tensor in tensors.items():
        end = offset + tensor.nbytes
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [offset, end]}  # fmt: skip
        offset = end
    text = json.dumps(header).encode()
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """The upper half of float32's bits, rounded to nearest even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def pack(values: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned integers [..., count] into words [..., words], lowest bits first."""
    per = 32 // bits
    padding = -values.shape[-1] % per
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, padding)])
    grouped = padded.reshape(*values.shape[:-1], -1, per).astype(np.uint32)
    return np.bitwise_or.reduce(grouped << (np.arange(per, dtype=np.uint32) * bits), axis=-1)


def unpack(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Unsigned integers [..., count] from words, as int64."""
    shifts = np.arange(32 // bits, dtype=np.uint32) * bits
    values = (words.astype(np.uint32)[..., None] >> shifts) & ((1 << bits) - 1)
    return values.reshape(*words.shape[:-1], -1)[..., :count].astype(np.int64)


@dataclass
class Format:
    """One way to quantize: the writer's settings and quantization_config."""

    write: Callable[[Format, str, np.ndarray, np.random.Generator], Tensors]
    read: Callable[[Format, str, Tensors], np.ndarray]
    config: dict[str, Any]
    bits: int = 4
    group_size: int = 32  # -1: the whole row
    symmetric: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    bfloat16_scales: bool = False

    def group(self, columns: int) -> int:
        return columns if self.group_size == -1 else self.group_size


@dataclass
class Integers:
    """weight = (q - zero) * scale; q [rows, columns] unsigned, scale and zero [rows, groups]."""

    q: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    group_of: np.ndarray  # [columns]


def quantize(
    weight: np.ndarray, bits: int, group_size: int, symmetric: bool, group_of: np.ndarray
) -> Integers:
    """Round to the nearest of 2^bits levels between a group's smallest and largest weight."""
    levels = (1 << bits) - 1
    groups = [weight[:, group_of == g] for g in range(-(-weight.shape[1] // group_size))]
    low = np.stack([np.minimum(g.min(1), 0) for g in groups], 1)
    high = np.stack([np.maximum(g.max(1), 0) for g in groups], 1)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    scale = ((high - low) / levels).astype(np.float16)
    half = np.full(scale.shape, (levels + 1) // 2)
    zero = half if symmetric else np.clip(np.rint(-low / scale), 0, levels)
    q = np.rint(weight / scale[:, group_of].astype(np.float32)) + zero[:, group_of]
    return Integers(np.clip(q, 0, levels).astype(np.int64), scale, zero.astype(np.int64), group_of)


def dequantized(q: np.ndarray, zero: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """(q - zero) * scale in float32, all [rows, columns]."""
    return (q - zero).astype(np.float32) * scale.astype(np.float32)


def usual_groups(columns: int, group_size: int) -> np.ndarray:
    return np.arange(columns) // group_size


# ------------------------------------------------------------------------------------------- GPTQ


def pack_dense(values: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned integers [..., count] into words [..., count * bits / 32] without unused bits."""
    stream = (values.astype(np.uint8)[..., None] >> np.arange(bits, dtype=np.uint8)) & 1
    stream = stream.reshape(*values.shape[:-1], -1)
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4")


def unpack_dense(words: np.ndarray, bits: int) -> np.ndarray:
    stream = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    values = stream.reshape(*words.shape[:-1], -1, bits).astype(np.int64)
    return values @ (1 << np.arange(bits))


def write_gptq(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """qweight [columns / per, rows], qzeros [groups, rows / per], scales [groups, rows]."""
    columns = weight.shape[1]
    group_of = usual_groups(columns, f.group(columns))
    if f.options.get("desc_act"):
        group_of = rng.permutation(group_of)
    n = quantize(weight, f.bits, f.group(columns), f.symmetric, group_of)
    stored_zero = (n.zero - f.options.get("less", 1)) & ((1 << f.bits) - 1)
    tensors = {
        f"{base}.qweight": pack_dense(n.q, f.bits).T.astype(np.int32),
        f"{base}.qzeros": pack_dense(np.ascontiguousarray(stored_zero.T), f.bits).astype(np.int32),
        f"{base}.scales": n.scale.T,
        f"{base}.g_idx": group_of.astype(np.int32),
    }
    if f.options.get("no_g_idx"):
        del tensors[f"{base}.g_idx"]
    return tensors


def read_gptq(f: Format, base: str, t: Tensors) -> np.ndarray:
    q = unpack_dense(t[f"{base}.qweight"].T, f.bits)
    columns = q.shape[1]
    zero = unpack_dense(t[f"{base}.qzeros"], f.bits) + f.options.get("less", 1)
    zero = zero & ((1 << f.bits) - 1)  # [groups, rows]
    group_of = t.get(f"{base}.g_idx", usual_groups(columns, f.group(columns)))
    return dequantized(q, zero[group_of].T, t[f"{base}.scales"][group_of].T)


def gptq_config(bits: int, group_size: int, **fields: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": group_size, **fields}


# -------------------------------------------------------------------------------------------- AWQ


def write_awq(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """qweight [columns, rows / 8], qzeros [groups, rows / 8], scales [groups, rows]."""
    del rng
    columns = weight.shape[1]
    n = quantize(weight, 4, f.group(columns), False, usual_groups(columns, f.group(columns)))

    def interleaved(values: np.ndarray) -> np.ndarray:
        words = values.reshape(values.shape[0], -1, 8)[:, :, AWQ_ORDER]
        return pack(words.reshape(values.shape), 4).astype(np.int32)

    return {
        f"{base}.qweight": interleaved(n.q.T),
        f"{base}.qzeros": interleaved(n.zero.T),
        f"{base}.scales": n.scale.T,
    }


def read_awq(f: Format, base: str, t: Tensors) -> np.ndarray:
    rows = t[f"{base}.scales"].shape[1]

    def straight(words: np.ndarray) -> np.ndarray:
        values = np.empty((words.shape[0], rows), np.int64)
        for i, column in enumerate(AWQ_ORDER):
            values[:, column::8] = (words.astype(np.uint32) >> (4 * i)) & 15
        return values

    q = straight(t[f"{base}.qweight"])
    group_of = usual_groups(q.shape[0], f.group(q.shape[0]))
    return dequantized(
        q.T, straight(t[f"{base}.qzeros"])[group_of].T, t[f"{base}.scales"][group_of].T
    )


def awq_gemv_width(f: Format, columns: int) -> int:
    """Words of the zero points of a row, padded as AutoAWQ pads them."""
    multiple = {64: 2, 32: 4}.get(f.group(columns), 1)
    words = -(-(columns // f.group(columns)) // 8)
    return -(-words // multiple) * multiple


def write_awq_gemv(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """qweight [rows, columns / 8], qzeros [rows, width], scales [rows, 8 width]."""
    del rng
    columns = weight.shape[1]
    n = quantize(weight, 4, f.group(columns), False, usual_groups(columns, f.group(columns)))
    padding = [(0, 0), (0, 8 * awq_gemv_width(f, columns) - n.scale.shape[1])]
    return {
        f"{base}.qweight": pack(n.q, 4).astype(np.int32),
        f"{base}.qzeros": pack(np.pad(n.zero, padding), 4).astype(np.int32),
        f"{base}.scales": np.pad(n.scale, padding),
    }


def read_awq_gemv(f: Format, base: str, t: Tensors) -> np.ndarray:
    columns = t[f"{base}.qweight"].shape[1] * 8
    q = unpack(t[f"{base}.qweight"], 4, columns)
    group_of = usual_groups(columns, f.group(columns))
    zero = unpack(t[f"{base}.qzeros"], 4, t[f"{base}.scales"].shape[1])
    return dequantized(q, zero[:, group_of], t[f"{base}.scales"][:, group_of])


# ----------------------------------------------------------------------------- compressed-tensors


def write_compressed(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """weight_packed [rows, columns / per]; signed integers, stored plus half of their range."""
    columns = weight.shape[1]
    group_of = usual_groups(columns, f.group(columns))
    if f.options.get("actorder"):
        group_of = rng.permutation(group_of)
    if f.options.get("per_tensor"):
        n = quantize(
            weight.reshape(1, -1), f.bits, weight.size, f.symmetric, np.zeros(weight.size, int)
        )
        n = Integers(n.q.reshape(weight.shape), n.scale[0], n.zero[0], group_of)
    else:
        n = quantize(weight, f.bits, f.group(columns), f.symmetric, group_of)
    half = 1 << (f.bits - 1)
    tensors = {
        f"{base}.weight_packed": pack(n.q, f.bits).astype(np.int32),
        f"{base}.weight_scale": to_bfloat16(n.scale) if f.bfloat16_scales else n.scale,
        f"{base}.weight_shape": np.array(weight.shape, np.int64),
    }
    if f.options.get("actorder"):
        tensors[f"{base}.weight_g_idx"] = group_of.astype(np.int32)
    if f.options.get("unset_g_idx"):
        tensors[f"{base}.weight_g_idx"] = np.full(columns, -1, np.int32)
    if f.symmetric:
        return tensors
    if f.options.get("zero_bytes") or f.options.get("per_tensor"):
        zero = (n.zero - half).astype(np.int8)
    else:
        zero = pack(n.zero.T, f.bits).T.astype(np.int32)  # [rows / per, groups]
    return tensors | {f"{base}.weight_zero_point": zero}


def read_compressed(f: Format, base: str, t: Tensors) -> np.ndarray:
    rows, columns = t[f"{base}.weight_shape"]
    half = 1 << (f.bits - 1)
    signed = unpack(t[f"{base}.weight_packed"], f.bits, columns) - half
    scale = np.atleast_2d(t[f"{base}.weight_scale"])
    if f.bfloat16_scales:
        scale = from_bfloat16(scale)
    zero = t.get(f"{base}.weight_zero_point", np.zeros(scale.shape, np.int8))
    if zero.dtype == np.int32:
        zero = unpack(zero.T, f.bits, rows).T - half
    group_of = t.get(f"{base}.weight_g_idx", np.array([-1]))
    if -1 in group_of:
        group_of = usual_groups(columns, f.group(columns))
    return dequantized(signed, np.atleast_2d(zero)[:, group_of], scale[:, group_of])


def compressed_config(bits: int, strategy: str, symmetric: bool, group_size: Any) -> dict[str, Any]:
    weights = {
        "num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": strategy,
        "group_size": group_size, "dynamic": False, "actorder": None, "observer": "minmax",
    }  # fmt: skip
    group = {"weights": weights, "targets": ["Linear"], "input_activations": None,
             "output_activations": None}  # fmt: skip
    return {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"],
        "quantization_status": "compressed", "kv_cache_scheme": None,
        "config_groups": {"group_0": group},
    }  # fmt: skip


# -------------------------------------------------------------------------------------------- FP8


def float8_values() -> np.ndarray:
    """What the 256 bytes of E4M3 mean: sign, 4 bits of exponent, 3 of mantissa; two NaNs."""
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    normal = np.ldexp(1 + mantissa / 8, exponent - 7)
    values = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), normal)
    values[(exponent == 15) & (mantissa == 7)] = np.nan
    return np.where(byte < 128, values, -values).astype(np.float32)


def spread(scale: np.ndarray, shape: tuple[int, int], block: tuple[int, int]) -> np.ndarray:
    """The scale of each element, from those of blocks."""
    rows = np.arange(shape[0]) // block[0]
    columns = np.arange(shape[1]) // block[1]
    return scale[rows][:, columns]


def to_float8(values: np.ndarray) -> np.ndarray:
    """The nearest bytes of E4M3."""
    table = float8_values()
    finite = np.flatnonzero(~np.isnan(table))
    order = finite[np.argsort(table[finite], kind="stable")]
    place = np.searchsorted(table[order], values).clip(1, len(order) - 1)
    lower = values - table[order[place - 1]] < table[order[place]] - values
    return order[place - lower].astype(np.uint8)


def write_float8(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """weight in E4M3, and the scales of blocks that make the largest magnitude 448."""
    del rng
    block = block_of(f, weight.shape)
    grid = tuple(-(-size // step) for size, step in zip(weight.shape, block, strict=True))
    padded = np.zeros([n * step for n, step in zip(grid, block, strict=True)], np.float32)
    padded[: weight.shape[0], : weight.shape[1]] = weight
    tiles = padded.reshape(grid[0], block[0], grid[1], block[1])
    scale = (np.abs(tiles).max((1, 3)) / 448).astype(np.float32)
    if f.bfloat16_scales:
        scale = from_bfloat16(to_bfloat16(scale))
    codes = to_float8(weight / spread(scale, weight.shape, block))
    shape = f.options["scale_shape"](grid)
    stored = to_bfloat16(scale) if f.bfloat16_scales else scale
    return {
        f"{base}.weight": codes.view("V1"),
        f"{base}.{f.options['scale']}": stored.reshape(shape),
    }


def block_of(f: Format, shape: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = f.options["block"]
    return rows or shape[0], columns or shape[1]


def read_float8(f: Format, base: str, t: Tensors) -> np.ndarray:
    codes = t[f"{base}.weight"].view(np.uint8)
    scale = t[f"{base}.{f.options['scale']}"]
    scale = from_bfloat16(scale) if f.bfloat16_scales else scale
    block = block_of(f, codes.shape)
    grid = [-(-size // step) for size, step in zip(codes.shape, block, strict=True)]
    return float8_values()[codes] * spread(scale.reshape(grid), codes.shape, block)


def compressed_floats(strategy: str, **fields: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": strategy, **fields}
    activations = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    group = {"weights": weights, "input_activations": activations, "targets": ["Linear"]}
    return {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
        "config_groups": {"group_0": group},
    }  # fmt: skip


# What the 16 codes of E2M1 mean.
FLOAT4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def write_nvfp4(f: Format, base: str, weight: np.ndarray, rng: np.random.Generator) -> Tensors:
    """Two codes of E2M1 in a byte, E4M3 scales of 16 columns, and one scale of those."""
    del rng
    of_all = (np.abs(weight).max() / (6 * 448)).astype(np.float32)
    groups = weight.reshape(weight.shape[0], -1, 16)
    scales = to_float8(np.abs(groups).max(2) / 6 / of_all)
    scaled = groups / (float8_values()[scales] * of_all)[..., None]
    codes = np.abs(scaled[..., None] - FLOAT4).argmin(-1).astype(np.uint8).reshape(weight.shape)
    names = f.options["names"]
    stored = np.float32(1) / of_all if f.options["divides"] else of_all
    return {
        f"{base}.{names[0]}": codes[:, ::2] | codes[:, 1::2] << 4,
        f"{base}.{names[1]}": scales.view("V1"),
        f"{base}.{names[2]}": np.full(f.options["shape"], stored, np.float32),
    }


def read_nvfp4(f: Format, base: str, t: Tensors) -> np.ndarray:
    packed, scales, of_all = (t[f"{base}.{name}"] for name in f.options["names"])
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)
    factors = float8_values()[scales.view(np.uint8)]
    factors = factors / of_all if f.options["divides"] else factors * of_all
    return FLOAT4[codes] * np.repeat(factors, 16, axis=1)


def compressed_nvfp4() -> dict[str, Any]:
    form = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    group = {"weights": form, "input_activations": form | {"dynamic": "local"}}
    return {
        "quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized",
        "kv_cache_scheme": {"num_bits": 8, "type": "float"}, "config_groups": {"group_0": group},
    }  # fmt: skip


FORMATS: dict[str, Format] = {
    "gptq-4": Format(write_gptq, read_gptq, gptq_config(4, 32, sym=False)),
    "gptq-4-sym": Format(write_gptq, read_gptq, gptq_config(4, 32, sym=True), symmetric=True),
    "gptq-4-sym-act-order": Format(
        write_gptq, read_gptq, gptq_config(4, 32, sym=True, desc_act=True), symmetric=True,
        options={"desc_act": True},
    ),
    "gptq-4-v2-whole-row": Format(
        write_gptq, read_gptq, gptq_config(4, -1, checkpoint_format="gptq_v2"), group_size=-1,
        options={"less": 0, "no_g_idx": True},
    ),
    "gptq-8-act-order": Format(
        write_gptq, read_gptq, gptq_config(8, 16, desc_act=True), bits=8, group_size=16,
        options={"desc_act": True},
    ),
    "gptq-2": Format(write_gptq, read_gptq, gptq_config(2, 32), bits=2),
    "gptq-3-sym": Format(write_gptq, read_gptq, gptq_config(3, 32), bits=3, symmetric=True),
    "awq-gemv": Format(
        write_awq_gemv, read_awq_gemv,
        {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemv"},
    ),
    "awq": Format(
        write_awq, read_awq,
        {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "GEMM",
         "modules_to_not_convert": None},
    ),
    "awq-whole-row": Format(
        write_awq, read_awq, {"quant_method": "awq", "bits": 4, "group_size": -1}, group_size=-1,
    ),
    "compressed-int4-group": Format(
        write_compressed, read_compressed, compressed_config(4, "group", True, 32), symmetric=True,
        bfloat16_scales=True,
    ),
    "compressed-int4-group-asym": Format(
        write_compressed, read_compressed, compressed_config(4, "group", False, 32),
    ),
    "compressed-int4-act-order": Format(
        write_compressed, read_compressed, compressed_config(4, "group", False, 32),
        options={"actorder": True},
    ),
    "compressed-int8-channel": Format(
        write_compressed, read_compressed, compressed_config(8, "channel", True, None), bits=8,
        group_size=-1, symmetric=True, options={"unset_g_idx": True},
    ),
    "compressed-int8-channel-asym": Format(
        write_compressed, read_compressed, compressed_config(8, "channel", False, None), bits=8,
        group_size=-1, options={"zero_bytes": True},
    ),
    "compressed-int8-tensor": Format(
        write_compressed, read_compressed, compressed_config(8, "tensor", False, None), bits=8,
        group_size=-1, options={"per_tensor": True},
    ),
    "fp8-block": Format(
        write_float8, read_float8,
        {"quant_method": "fp8", "weight_block_size": [32, 48], "activation_scheme": "dynamic"},
        options={"block": (32, 48), "scale": "weight_scale_inv", "scale_shape": list},
    ),
    "fp8-tensor": Format(
        write_float8, read_float8,
        {"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"},
        options={"block": (0, 0), "scale": "weight_scale_inv", "scale_shape": lambda _: []},
        bfloat16_scales=True,
    ),
    "compressed-float8-tensor": Format(
        write_float8, read_float8, compressed_floats("tensor"),
        options={"block": (0, 0), "scale": "weight_scale", "scale_shape": lambda _: [1]},
    ),
    "compressed-float8-channel": Format(
        write_float8, read_float8, compressed_floats("channel"),
        options={"block": (1, 0), "scale": "weight_scale", "scale_shape": list},
        bfloat16_scales=True,
    ),
    "compressed-nvfp4": Format(
        write_nvfp4, read_nvfp4, compressed_nvfp4(), group_size=-1,
        options={"names": ("weight_packed", "weight_scale", "weight_global_scale"),
                 "divides": True, "shape": (1,)},
    ),
    "modelopt-nvfp4": Format(
        write_nvfp4, read_nvfp4,
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"],
         "kv_cache_scheme": {"num_bits": 8, "type": "float"}, "producer": {"name": "modelopt"}},
        group_size=-1,
        options={"names": ("weight", "weight_scale", "weight_scale_2"), "divides": False,
                 "shape": ()},
    ),
    "modelopt-fp8": Format(
        write_float8, read_float8, {"quant_method": "modelopt", "quant_algo": "FP8"},
        options={"block": (0, 0), "scale": "weight_scale", "scale_shape": lambda _: []},
    ),
    "compressed-float8-block": Format(
        write_float8, read_float8, compressed_floats("block", block_structure=[64, 64]),
        options={"block": (64, 64), "scale": "weight_scale", "scale_shape": list},
    ),
}  # fmt: skip


def quantize_checkpoint(source: Path, quantized: Path, floats: Path, form: Format) -> None:
    """From a float32 folder, one with quantized projections and one with their float values."""
    rng = np.random.default_rng(5)
    config = json.loads((source / "config.json").read_text())
    is_turned = config["model_type"] == "gpt2"  # whose floats are stored as [columns, rows]
    stored, plain = Tensors(), Tensors()
    for name, tensor in load_file(source / WEIGHTS).items():
        is_small = tensor.shape[0] % 8 != 0  # gates of a few heads, which quantizers leave alone
        if "_proj." in name and name.endswith(".weight") and not is_small:
            base = name.removesuffix(".weight")
            matrix = np.ascontiguousarray(tensor.T) if is_turned else tensor
            parts = form.write(form, base, matrix, rng)
            stored |= parts
            values = form.read(form, base, parts)
            plain[name] = np.ascontiguousarray(values.T) if is_turned else values
        else:
            stored[name] = plain[name] = tensor
    write_folder(floats, config, plain)
    write_folder(quantized, config | {"quantization_config": form.config}, stored)


def write_folder(folder: Path, config: dict[str, Any], tensors: Tensors) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / WEIGHTS)
