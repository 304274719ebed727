"""Ops around paged keys and values, against float64 on dense ones."""

from __future__ import annotations

from dataclasses import dataclass

import op_reference as reference
import pytest
import torch
from op_devices import Device
from op_reference import EPSILON, assert_close, f64

PAGE = 16


@dataclass
class Shape:
    q_heads: int
    kv_heads: int
    head_dim: int


SHAPES = [Shape(1, 1, 8), Shape(4, 2, 40), Shape(6, 2, 64), Shape(4, 1, 128)]


class PagedKv:
    """Sequences with random keys and values in shuffled pages of a pool that is NaN elsewhere."""

    def __init__(
        self,
        device: Device,
        shape: Shape,
        lengths: list[int],
        dtype: torch.dtype,
        kv_dtype: torch.dtype,
    ) -> None:
        self.shape = shape
        pages = [(length + PAGE - 1) // PAGE for length in lengths]
        num_pages = sum(pages) + 2
        free = torch.randperm(num_pages, dtype=torch.int32)
        tables = torch.full((len(lengths), max(pages)), -1, dtype=torch.int32)
        for row, (used, chosen) in enumerate(zip(pages, free.split([*pages, 2]), strict=False)):
            tables[row, :used] = chosen
        self.kv = device.ops.new_kv_pages(
            num_pages, shape.kv_heads, shape.head_dim, dtype=kv_dtype, device=device.torch_name
        )
        self.tables = device(tables)
        self.lengths = device(torch.tensor(lengths, dtype=torch.int32))
        self.k, self.v = [], []
        for table, length in zip(tables, lengths, strict=True):
            p = torch.arange(length)
            slots = device(table[p // PAGE].long() * PAGE + p % PAGE)
            rows = torch.randn(length, 2 * shape.kv_heads * shape.head_dim).to(dtype)
            no_rope = device(torch.empty(0, 0))
            device.ops.qk_rope_write_kv(
                device(rows),
                self.kv,
                device(p.int()),
                slots,
                no_rope,
                no_rope,
                shape.head_dim,
            )
            written = f64(device.ops.read_kv(self.kv, slots, shape.head_dim))
            wanted = f64(rows).view(length, -1, shape.head_dim)
            tolerance = {torch.int8: 0.02, torch.float8_e4m3fn: 0.08}.get(kv_dtype)
            for got, want in zip(written, wanted.chunk(2, 1), strict=True):
                assert_close(got, want, tolerance or EPSILON[kv_dtype])
            self.k.append(written[0])
            self.v.append(written[1])

    def q(self, device: Device, rows: int, dtype: torch.dtype) -> torch.Tensor:
        """Rows of q inside of wider ones."""
        width = self.shape.q_heads + 2
        wide = device(torch.randn(rows, width, self.shape.head_dim).to(dtype))
        return wide[:, 1:-1]


OPTIONS: list[dict[str, float]] = [
    {}, {"soft_cap": 3.0}, {"window": 20}, {"scale": 0.3, "window": 1}
]  # fmt: skip
CASES = [(0, 0), (0, 3), (1, 0), (1, 1), (1, 2), (2, 1), (2, 3), (3, 2)]  # shape, options


def tolerance(dtype: torch.dtype, kv_dtype: torch.dtype) -> float:
    """Some CPUs round queries and probabilities to bfloat16 for such pages and for int8."""
    if dtype == torch.float32 and kv_dtype in (torch.bfloat16, torch.int8):
        return 2**-7
    return 2e-5 if dtype == torch.float32 else 2 * EPSILON[dtype]


@pytest.mark.parametrize(("shape", "options"), [(SHAPES[i], OPTIONS[j]) for i, j in CASES], ids=str)
def test_decode_attention(device: Device, shape: Shape, options: dict[str, float]) -> None:
    lengths = [1, 16, 17, 75]
    for dtype in device.dtypes:
        for kv_dtype in device.kv_dtypes(dtype):
            paged = PagedKv(device, shape, lengths, dtype, kv_dtype)
            q = paged.q(device, len(lengths), dtype)
            got = device.ops.paged_decode_attention(
                q, paged.kv, paged.tables, paged.lengths, **options,
            )  # fmt: skip
            assert got.dtype == dtype
            scaled = {"scale": shape.head_dim**-0.5, **options}
            for i in range(len(lengths)):
                want = reference.attention(q[i : i + 1], paged.k[i], paged.v[i], **scaled)
                assert_close(got[i : i + 1], want, tolerance(dtype, kv_dtype))


@pytest.mark.parametrize(("shape", "options"), [(SHAPES[i], OPTIONS[j]) for i, j in CASES], ids=str)
def test_prefill_attention(device: Device, shape: Shape, options: dict[str, float]) -> None:
    lengths, rows = [5, 40, 90, 33], [5, 1, 37, 0]
    starts = torch.tensor([0, *rows], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    for dtype in device.dtypes:
        for kv_dtype in device.kv_dtypes(dtype):
            paged = PagedKv(device, shape, lengths, dtype, kv_dtype)
            q = paged.q(device, sum(rows), dtype)
            got = device.ops.paged_prefill_attention(
                q, paged.kv, paged.tables, paged.lengths, starts, **options,
            )  # fmt: skip
            assert got.dtype == dtype
            scaled = {"scale": shape.head_dim**-0.5, **options}
            for i in range(len(lengths)):
                mine = slice(starts[i], starts[i + 1])
                want = reference.attention(q[mine], paged.k[i], paged.v[i], **scaled)
                assert_close(got[mine], want, tolerance(dtype, kv_dtype))


def test_windows_of_any_size(device: Device) -> None:
    """A window that is longer than every sequence is none."""
    dtype = device.dtypes[0]
    paged = PagedKv(device, SHAPES[1], [40, 75], dtype, dtype)
    q = paged.q(device, 38, dtype)
    starts = torch.tensor([0, 37, 38], dtype=torch.int32)
    arguments = (paged.kv, paged.tables, paged.lengths)
    decoded = device.ops.paged_decode_attention(q[:2], *arguments)
    prefilled = device.ops.paged_prefill_attention(q, *arguments, starts)
    for window in (2**31 - 1, 2**32 + 1, 2**63 - 20, 2**63 - 1):
        got = device.ops.paged_decode_attention(q[:2], *arguments, window=window)
        assert torch.equal(got, decoded), window
        got = device.ops.paged_prefill_attention(q, *arguments, starts, window=window)
        assert torch.equal(got, prefilled), window


def test_attention_does_not_depend_on_batch_or_chunks(device: Device) -> None:
    lengths = [70, 9, 130]
    for dtype in device.dtypes:
        paged = PagedKv(device, Shape(4, 2, 64), lengths, dtype, dtype)
        q = paged.q(device, 3, dtype)
        attend = device.ops.paged_decode_attention
        whole = attend(q, paged.kv, paged.tables, paged.lengths)
        for i in range(3):
            one = slice(i, i + 1)
            alone = attend(q[one], paged.kv, paged.tables[one], paged.lengths[one])
            assert torch.equal(alone, whole[one])

        q = paged.q(device, 50, dtype)
        table = paged.tables[2:]
        whole = device.ops.paged_prefill_attention(
            q, paged.kv, table, paged.lengths[2:], torch.tensor([0, 50], dtype=torch.int32)
        )
        for begin, end in ((0, 7), (7, 33), (33, 50)):
            part = device.ops.paged_prefill_attention(
                q[begin:end], paged.kv, table, paged.lengths[2:] - (50 - end),
                torch.tensor([0, end - begin], dtype=torch.int32),
            )  # fmt: skip
            assert torch.equal(part, whole[begin:end])


@pytest.mark.parametrize("has_norm", [False, True])
@pytest.mark.parametrize(("rotary_dim", "q_heads"), [(16, 4), (24, 4), (40, 4), (16, 0)])
def test_qk_rope_write_kv(device: Device, rotary_dim: int, q_heads: int, has_norm: bool) -> None:
    kv_heads, dim, m = 2, 40, 7
    angles = torch.arange(50).unsqueeze(1) * torch.rand(rotary_dim // 2)
    cos, sin = device(angles.cos()), device(angles.sin())
    positions = device(torch.randint(0, 50, (m,), dtype=torch.int32))
    slots = torch.randperm(4 * PAGE)[:m]
    skipped = torch.tensor([2, 3])
    slots[skipped] = -1
    rows = torch.arange(m)[slots >= 0]
    for dtype in device.dtypes:
        for kv_dtype in device.kv_dtypes(dtype):
            kv = device.ops.new_kv_pages(4, kv_heads, dim, dtype=kv_dtype, device=device.torch_name)
            width = (q_heads + 2 * kv_heads) * dim
            qkv = device(torch.randn(m, width + 8).to(dtype))[:, :width]
            norms = [device(torch.randn(dim).to(dtype)) for _ in range(2)] if has_norm else []
            before = qkv.cpu().clone()
            q, k, v = before.view(m, -1, dim).split([q_heads, kv_heads, kv_heads], 1)
            if has_norm:
                q, k = (reference.rms_norm(x, w, 1e-5) for x, w in zip((q, k), norms, strict=True))
            want_q, want_k = (reference.rope(x, positions, cos, sin) for x in (q, k))
            device.ops.qk_rope_write_kv(
                qkv, kv, positions, device(slots), cos, sin, dim, *norms, eps=1e-5,
            )  # fmt: skip
            got_q = qkv.cpu()[:, : q_heads * dim].reshape(m, q_heads, dim)
            assert_close(got_q[rows], want_q[rows], 4 * EPSILON[dtype])
            assert torch.equal(qkv.cpu()[skipped], before[skipped])
            written = device.ops.read_kv(kv, device(slots[rows]), dim)
            near = {torch.int8: 0.05, torch.float8_e4m3fn: 0.08}.get(
                kv_dtype, EPSILON.get(kv_dtype, 0)
            )
            assert_close(written[0], want_k[rows], 2 * near)
            assert_close(written[1], f64(v)[rows], 2 * near)


def test_copy_pages(device: Device) -> None:
    for dtype in device.kv_dtypes(device.dtypes[-1]):
        paged = PagedKv(device, Shape(2, 2, 24), [64], device.dtypes[-1], dtype)
        table = paged.tables[0].tolist()
        free = [page for page in range(6) if page not in table]
        pairs = torch.tensor([[table[2], free[0]], [table[0], free[1]]], dtype=torch.int32)
        device.ops.copy_pages_(paged.kv, device(pairs), 24)
        for position, page in ((32, free[0]), (0, free[1])):
            slots = device(page * PAGE + torch.arange(PAGE))
            got = f64(device.ops.read_kv(paged.kv, slots, 24))
            assert torch.equal(got[0], paged.k[0][position : position + PAGE])
            assert torch.equal(got[1], paged.v[0][position : position + PAGE])
        all_slots = device(
            paged.tables[0].cpu().long().repeat_interleave(PAGE) * PAGE + torch.arange(64) % PAGE
        )
        assert torch.equal(f64(device.ops.read_kv(paged.kv, all_slots, 24)[0]), paged.k[0])
