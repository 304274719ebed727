"""Wrong arguments are named; shape inference and torch.compile see what runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from op_devices import Device

import mlc_native.ops as ops


def zeros(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def ints(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def pages(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    kv = ops.new_kv_pages(4, 2, 8, dtype=dtype)
    return kv.zero_()


def decode(q: torch.Tensor, **changes: Any) -> torch.Tensor:
    arguments = {"kv": pages(), "block_tables": ints(0, 1).view(1, 2), "lengths": ints(5)}
    return ops.paged_decode_attention(q, **{**arguments, **changes})


def prefill(rows: int, lengths: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    return ops.paged_prefill_attention(
        zeros(rows, 2, 8), pages(), ints(0, 1).view(1, 2), lengths, starts
    )


def rope(**changes: Any) -> None:
    arguments: dict[str, Any] = {
        "qkv": zeros(2, 6 * 8),
        "kv": pages(),
        "positions": ints(0, 1),
        "slots": ints(0, 1, dtype=torch.int64),
        "cos": zeros(9, 4),
        "sin": zeros(9, 4),
        "head_dim": 8,
    }
    ops.qk_rope_write_kv(**{**arguments, **changes})


def moe(**changes: Any) -> torch.Tensor:
    arguments: dict[str, Any] = {
        "x": zeros(3, 8),
        "router_logits": zeros(3, 4),
        "gate_up": ops.pack_weight(zeros(4, 16, 8), "float32"),
        "down": ops.pack_weight(zeros(4, 8, 8), "float32"),
        "format": "float32",
        "num_chosen": 2,
    }
    return ops.moe(**{**arguments, **changes})


WRONG: list[tuple[str, Callable[[], object]]] = [
    ("table must have shape", lambda: ops.embedding(zeros(8), ints(0))),
    ("table must be of type", lambda: ops.embedding(ints(0).view(1, 1), ints(0))),
    ("ids must be of type", lambda: ops.embedding(zeros(3, 8), ints(0, dtype=torch.int64))),
    ("ids must be in", lambda: ops.embedding(zeros(3, 8), ints(3))),
    ("ids must be in", lambda: ops.embedding(zeros(3, 8), ints(-1))),
    ("weight must have shape", lambda: ops.rms_norm(zeros(3, 8), zeros(16))),
    ("weight must be of type", lambda: ops.rms_norm(zeros(3, 8), zeros(8).bfloat16())),
    ("x must have a last", lambda: ops.rms_norm(zeros(3, 0), zeros(0))),
    ("residual must have", lambda: ops.add_rms_norm(zeros(2, 8), zeros(3, 8), zeros(8))),
    ("residual must be con", lambda: ops.add_rms_norm(zeros(8, 8).T, zeros(8, 8), zeros(8))),
    ("x must have an even", lambda: ops.gated_activation(zeros(3, 7))),
    ("activation must be", lambda: ops.gated_activation(zeros(3, 16), "relu")),
    ("cap must be positive", lambda: ops.soft_cap_(zeros(3, 8), 0.0)),
    ("x must be contiguous", lambda: ops.soft_cap_(zeros(3, 8).T, 1.0)),
    ("format must be", lambda: ops.pack_weight(zeros(3, 8), "q3")),
    ("packed must be", lambda: ops.linear(zeros(3, 8), zeros(3, 9, dtype=torch.uint8), "q8")),
    ("bias must have", lambda: ops.linear(
        zeros(3, 8), ops.pack_weight(zeros(4, 8), "float32"), "float32", zeros(3))),
    ("weight must have 2", lambda: ops.pack_weight(zeros(8), "q8")),
    ("weight must have rows", lambda: ops.pack_weight(zeros(0, 8), "q8")),
    ("packed must have rows", lambda: ops.linear(zeros(3, 8), zeros(0, 9).byte(), "q8")),
    ("packed must have rows", lambda: ops.unpack_weight(zeros(0, 9).byte(), "q8", 8)),
    ("router_logits must have shape", lambda: moe(router_logits=zeros(2, 4))),
    ("router_logits must have 1 to 1024", lambda: moe(router_logits=zeros(3, 1025))),
    ("gate_up must have shape", lambda: moe(router_logits=zeros(3, 5))),
    ("gate_up must have an even", lambda: moe(
        gate_up=ops.pack_weight(zeros(4, 15, 8), "float32"))),
    ("gate_up must be what", lambda: moe(gate_up=ops.pack_weight(zeros(4, 16, 80), "float32"))),
    ("down must have shape", lambda: moe(down=ops.pack_weight(zeros(4, 9, 8), "float32"))),
    ("down must be what", lambda: moe(down=ops.pack_weight(zeros(4, 8, 80), "float32"))),
    ("num_chosen must be in", lambda: moe(num_chosen=5)),
    ("num_chosen must be in", lambda: moe(num_chosen=3, num_groups=2)),
    ("num_groups must divide", lambda: moe(num_groups=3)),
    ("num_chosen_groups must be in", lambda: moe(num_groups=2, num_chosen_groups=3)),
    ("score must be one of", lambda: moe(score="relu")),
    ("correction must not", lambda: moe(score="sparse_mixer", correction=zeros(4))),
    ("correction must have", lambda: moe(correction=zeros(3))),
    ("down_bias must have", lambda: moe(down_bias=zeros(8))),
    ("limit must not be", lambda: moe(limit=-1.0)),
    ("activation must be 'silu'", lambda: moe(limit=1.0, activation="gelu_tanh")),
    ("kv must have shape", lambda: decode(zeros(1, 2, 40))),
    ("q must have a multiple", lambda: decode(zeros(1, 3, 8))),
    ("lengths must be in", lambda: decode(zeros(1, 2, 8), lengths=ints(33))),
    ("block_tables must have", lambda: decode(zeros(2, 2, 8), lengths=ints(1, 1))),
    ("block_tables must be in", lambda: decode(
        zeros(1, 2, 8), block_tables=ints(4, 0).view(1, 2))),
    ("window must not be negative, got -1", lambda: decode(zeros(1, 2, 8), window=-1)),
    ("soft_cap must not be negative, got -1", lambda: decode(zeros(1, 2, 8), soft_cap=-1.0)),
    ("query_starts must go", lambda: prefill(3, ints(9), ints(0, 2))),
    ("lengths must include", lambda: prefill(3, ints(2), ints(0, 3))),
    ("qkv must have rows", lambda: rope(qkv=zeros(2, 3 * 8))),
    ("qkv is written to", lambda: rope(qkv=zeros(48, 2).T)),
    ("positions must be in", lambda: rope(positions=ints(0, 9))),
    ("slots must be in", lambda: rope(slots=ints(0, 64, dtype=torch.int64))),
    ("cos must have at most", lambda: rope(cos=zeros(9, 5), sin=zeros(9, 5))),
    ("q_norm and k_norm", lambda: rope(q_norm=zeros(8))),
    ("pairs must be in", lambda: ops.copy_pages_(pages(), ints(0, 4).view(1, 2), 8)),
    ("slots must be in", lambda: ops.read_kv(pages(), ints(64, dtype=torch.int64), 8)),
]  # fmt: skip


@pytest.mark.parametrize(("message", "call"), WRONG, ids=[message for message, _ in WRONG])
def test_wrong_arguments(device: Device, message: str, call: Callable[[], object]) -> None:
    if device.torch_name != "cpu":
        pytest.skip("the same checks")
    with pytest.raises(ValueError, match=message):
        call()


def test_cpu_says_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match=r"x must be of type .*Float.*got BFloat16"):
        ops.rms_norm(zeros(3, 8).bfloat16(), zeros(8).bfloat16())
    with pytest.raises(ValueError, match="kv must be of type"):
        decode(zeros(1, 2, 8), kv=pages(torch.float8_e4m3fn))


def cos() -> torch.Tensor:
    return torch.rand(9, 4)


SLOTS, TABLES = ints(1, 2, dtype=torch.int64), ints(0, 1).view(1, 2)
CALLS: dict[str, Callable[[Device], tuple[Any, ...]]] = {
    "embedding": lambda _: (torch.randn(3, 8), ints(0, 2)),
    "rms_norm": lambda _: (torch.randn(2, 3, 8), torch.randn(8)),
    "add_rms_norm": lambda _: (torch.randn(3, 8), torch.randn(3, 8), torch.randn(8)),
    "gated_activation": lambda _: (torch.randn(3, 16),),
    "soft_cap_": lambda _: (torch.randn(3, 8), 2.0),
    "unpack_weight": lambda device: (ops.pack_weight(device(torch.randn(5, 8)), "q8"), "q8", 8),
    "linear": lambda device: (
        torch.randn(2, 3, 8),
        ops.pack_weight(device(torch.randn(5, 8)), "float32"),
        "float32",
        torch.randn(5),
        True,
    ),
    "moe": lambda device: (
        torch.randn(3, 8),
        torch.randn(3, 4),
        ops.pack_weight(device(torch.randn(4, 16, 8)), "float32"),
        ops.pack_weight(device(torch.randn(4, 8, 8)), "float32"),
        "float32",
        2,
    ),
    "new_kv_pages": lambda _: (torch.empty(0), 4, 2, 8),
    "read_kv": lambda _: (pages(), SLOTS, 8),
    "qk_rope_write_kv": lambda _: (torch.randn(2, 48), pages(), ints(1, 2), SLOTS, cos(), cos(), 8),
    "copy_pages_": lambda _: (pages(), TABLES, 8),
    "paged_decode_attention": lambda _: (torch.randn(1, 2, 8), pages(), TABLES, ints(5)),
    "paged_prefill_attention": lambda _: (
        torch.randn(1, 2, 8), pages(), TABLES, ints(5), ints(0, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_schema_and_shape_inference(device: Device, name: str) -> None:
    """Only what the schema says is written to, and fake tensors have the shapes of real ones."""
    torch.use_deterministic_algorithms(False)  # opcheck compares runs, NaN is not equal
    torch.library.opcheck(
        getattr(ops._ops, name).default,
        tuple(device(a) if isinstance(a, torch.Tensor) else a for a in CALLS[name](device)),
        test_utils=("test_schema", "test_faketensor"),
    )


def test_compile(device: Device) -> None:
    """A block of ops compiles without a graph break."""
    weight = device(torch.randn(8))
    packed = ops.pack_weight(device(torch.randn(16, 8)), "q8")
    dtype = device.dtypes[-1]

    def block(residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        y = ops.add_rms_norm(residual, x, weight.to(dtype))
        return ops.gated_activation(ops.linear(y, packed, "q8"))

    x = device(torch.randn(3, 8).to(dtype))
    plain, compiled = device(torch.randn(3, 8)), None
    compiled = plain.clone()
    want = block(plain, x)
    got = torch.compile(block, fullgraph=True, backend="aot_eager")(compiled, x)
    assert torch.equal(got, want)
    assert torch.equal(compiled, plain)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImportError, match=r"needs torch 2.10 or later, this is torch 2.9.1"):
        ops._load(version="2.9.1+cpu")
    with pytest.raises(ImportError, match="built without torch"):
        ops._load(tmp_path)
