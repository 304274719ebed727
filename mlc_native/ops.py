"""The engine's kernels as torch ops, for building models and for testing kernels.

    import mlc_native.ops as ops

    packed = ops.pack_weight(weight, "q4")  # [n, k], once
    y = ops.linear(x, packed, "q4")  # [..., k] -> [..., n]

Importing the module loads the library. The ops are then also ``torch.ops.mlc_native.*``, with the
same names and arguments. All devices share one schema:

* CPU: activations and norm weights are float32; KV pages float32, bfloat16, float16 or int8.
* CUDA (with the package mlc_native_cuda, or if nvcc was there when mlc_native was built):
  activations are float32, bfloat16 or float16, norm weights of the same type; KV pages of the same
  type or, with 16-bit activations, float8_e4m3fn. Rows and heads are multiples of 8 elements.
  Tested on one H100 and, with every change, on an emulator.

The result of a row depends only on that row, bit by bit: neither on the other rows, nor on their
number, nor on the number of threads. All tensors of a call are on one device unless the function
says otherwise. Inputs may have any strides (some are copied); outputs must be contiguous. A wrong
shape, type or device raises ValueError with a message that begins with the argument's name. Token
ids, slots and page numbers are checked on the CPU; on CUDA the caller must ensure that they are
valid. There are no gradients.

A KV page holds 16 tokens. ``new_kv_pages`` makes the pages of one layer, keys and values. The order
of elements within a page depends on the device; ``read_kv`` reads them. Slot ``16 * page + i`` is
the i-th token of a page. Position p of a sequence is in page ``block_table[p // 16]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError as error:
    raise ImportError("mlc_native.ops needs torch: pip install 'mlc_native[ops]'") from error

__all__ = [
    "Sampled",
    "add_rms_norm",
    "copy_pages_",
    "embedding",
    "gated_activation",
    "linear",
    "moe",
    "new_kv_pages",
    "pack_weight",
    "paged_decode_attention",
    "paged_prefill_attention",
    "qk_rope_write_kv",
    "read_kv",
    "rms_norm",
    "sample",
    "soft_cap_",
    "unpack_weight",
]

_LIB = Path(__file__).parent / "lib"
_OLDEST_TORCH = (2, 10)  # whose stable ABI the library uses


def _load(lib: Path = _LIB, version: str = torch.__version__) -> Any:
    """Loads the ops of this build; ImportError where it has none, or torch is too old for them."""
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_TORCH:
        raise ImportError(
            f"mlc_native.ops needs torch 2.10 or later, this is torch {version}: "
            "pip install --upgrade 'mlc_native[ops]'"
        )
    library = lib / "libmlc_native_ops.so"
    if not library.exists():
        raise ImportError(
            f"{library} is missing: mlc_native was built without torch. Released wheels have it; "
            "from the sources: pip install torch, then CMAKE_ARGS=-DMLC_NATIVE_OPS=ON "
            "pip install --no-build-isolation ."
        )
    torch.ops.load_library(library)
    if torch.cuda.is_available():
        for place in (lib, lib.parents[1] / "mlc_native_cuda" / "lib"):
            if (on_cuda := place / "libmlc_native_cuda_ops.so").exists():
                torch.ops.load_library(on_cuda)
                break
    return torch.ops.mlc_native


_ops = _load()


def embedding(table: Tensor, ids: Tensor, scale: float = 1.0) -> Tensor:
    """``scale * table[ids]`` as float32.

    table: [n, k] of float32, bfloat16 or float16; ids: int32 [m] -> float32 [m, k].
    """
    return _ops.embedding(table, ids, scale)


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-6, weight_offset: float = 0.0) -> Tensor:
    """``x / sqrt(mean(x**2) + eps) * (weight + weight_offset)`` over the last dimension.

    x: [..., dim]; weight: [dim] -> like x. weight_offset is 1 for Gemma.
    """
    return _ops.rms_norm(x, weight, eps, weight_offset)


def add_rms_norm(
    residual: Tensor,
    x: Tensor,
    weight: Tensor,
    post_weight: Tensor | None = None,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
) -> Tensor:
    """Adds x to residual in place (with post_weight, the norm of x), and returns the sum's norm.

    residual: float32 [m, dim], contiguous; x: [m, dim]; weight, post_weight: [dim] -> like x.
    """
    return _ops.add_rms_norm(residual, x, weight, post_weight, eps, weight_offset)


def gated_activation(x: Tensor, activation: str = "silu") -> Tensor:
    """``act(x[..., :ffn]) * x[..., ffn:]``; activation is "silu" or "gelu_tanh".

    x: [..., 2 * ffn] -> [..., ffn].
    """
    return _ops.gated_activation(x, activation)


def soft_cap_(x: Tensor, cap: float) -> Tensor:
    """``x = cap * tanh(x / cap)`` in place; returns x.

    x: float32 [m, n], contiguous; cap > 0.
    """
    _ops.soft_cap_(x, cap)
    return x


def pack_weight(weight: Tensor, format: str) -> Tensor:
    """Packs a weight in the order in which this device's products read it, rounded or quantized.

    weight: [n, k] of float32, bfloat16 or float16; format: "float32", "bfloat16", "float16", "q8"
    (8 bits, a scale per 64 k) or "q4" (4 bits, a scale per 32 k) -> uint8 [n, ...], opaque.
    Weights of experts, [experts, n, k] -> uint8 [experts, n, ...], are for ``moe``. The CPU
    quantizes, so the result is the same for every device.
    """
    return _ops.pack_weight(weight, format)


def unpack_weight(packed: Tensor, format: str, k: int) -> Tensor:
    """Returns the values of a packed weight [n, k] as float32 [n, k]."""
    return _ops.unpack_weight(packed, format, k)


def linear(
    x: Tensor,
    packed: Tensor,
    format: str,
    bias: Tensor | None = None,
    float_output: bool = False,
) -> Tensor:
    """``x @ weight.T + bias`` for a weight [n, k] that pack_weight packed in this format.

    x: [..., k]; bias: [n] -> [..., n] like x, or float32 with float_output. On the CPU, q8 and q4
    round x to 8 bits per group, and float16 and bfloat16 compute in float32 (CPUs with AVX512-BF16
    round x to bfloat16). On CUDA, a 16-bit format must be the type of x. The CUDA kernel is made
    for few rows; more than 32 are computed 32 at a time.
    """
    return _ops.linear(x, packed, format, bias, float_output)


def moe(
    x: Tensor,
    router_logits: Tensor,
    gate_up: Tensor,
    down: Tensor,
    format: str,
    num_chosen: int,
    *,
    score: str = "softmax",
    correction: Tensor | None = None,
    num_groups: int = 1,
    num_chosen_groups: int = 1,
    renormalize: bool = False,
    smallest_sum: float = 1e-20,
    scale: float = 1.0,
    jitter: float = 0.0,
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    activation: str = "silu",
    limit: float = 0.0,
    sharpness: float = 1.0,
) -> Tensor:
    """A mixture of experts: what the ``num_chosen`` best experts of each row give, weighed.

    An expert gives ``gated_activation(x @ gate_up[e].T + gate_up_bias[e]) @ down[e].T +
    down_bias[e]``. x: [m, k]; router_logits: float32 [m, experts], at most 1024 experts; gate_up,
    down: what pack_weight made of [experts, 2 * ffn, k] and [experts, k, ffn] in this format;
    gate_up_bias: [experts, 2 * ffn] and down_bias: [experts, k] like x -> [m, k] like x. Types of x
    and what is rounded are as in ``linear``. Only the matrices of chosen experts are read.

    score: "softmax" (an expert's probability among all), "sigmoid" (its own), or "sparse_mixer"
    (one after the other, each weighed among those that are left and within twice the ``jitter``).
    correction: float32 [experts], added to the scores for the choice only. The experts come in
    num_groups groups of equal size; only those of the num_chosen_groups best ones are chosen, where
    a group is as good as its best two experts together. Of equal experts, the lower one is better.
    The weights are divided by their sum (at least smallest_sum) with renormalize, and multiplied
    with scale. limit: 0 means none, else the activation is that of gpt-oss: with g the first half,
    at most limit, and u the second one within [-limit, limit], it is
    ``g * sigmoid(sharpness * g) * (u + 1)``.
    """
    return _ops.moe(
        x,
        router_logits,
        gate_up,
        down,
        format,
        num_chosen,
        score,
        correction,
        num_groups,
        num_chosen_groups,
        renormalize,
        smallest_sum,
        scale,
        jitter,
        gate_up_bias,
        down_bias,
        activation,
        limit,
        sharpness,
    )


def new_kv_pages(
    num_pages: int,
    kv_heads: int,
    head_dim: int,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Makes uninitialized pages of one layer: keys and values of 16 * num_pages tokens.

    -> [2, num_pages, kv_heads, 16, ...] of dtype, opaque. With int8 (on the CPU) and float8_e4m3fn
    (on GPUs) they hold a float32 scale of each token and head, too: numbers of any magnitude can be
    written.
    """
    like = torch.empty(0, dtype=dtype, device=device)
    return _ops.new_kv_pages(like, num_pages, kv_heads, head_dim)


def read_kv(kv: Tensor, slots: Tensor, head_dim: int) -> Tensor:
    """Reads keys and values of some slots, for tests.

    slots: int64 [m] -> float32 [2, m, kv_heads, head_dim].
    """
    return _ops.read_kv(kv, slots, head_dim)


def qk_rope_write_kv(
    qkv: Tensor,
    kv: Tensor,
    positions: Tensor,
    slots: Tensor,
    cos: Tensor,
    sin: Tensor,
    head_dim: int,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 1e-6,
    weight_offset: float = 0.0,
) -> None:
    """Normalizes (if norms are given) and rotates q and k of each head; writes k and v to pages.

    qkv: [m, (q_heads + 2 * kv_heads) * head_dim], rows may have a stride; q is changed in place,
    and k and v are unspecified afterwards. kv: new_kv_pages. positions: int32 [m]. slots: int64
    [m], distinct; rows with a negative slot are skipped. cos, sin: float32 [max_position,
    rotary_dim / 2]; element i of a head is paired with i + rotary_dim / 2, and elements beyond
    rotary_dim are not rotated. q_norm, k_norm: [head_dim].
    """
    _ops.qk_rope_write_kv(
        qkv,
        kv,
        positions,
        slots,
        cos,
        sin,
        head_dim,
        q_norm,
        k_norm,
        eps,
        weight_offset,
    )


def copy_pages_(kv: Tensor, pairs: Tensor, head_dim: int) -> None:
    """Copies pages, both keys and values.

    pairs: int32 [n, 2] of (source, destination). No page may be both.
    """
    _ops.copy_pages_(kv, pairs, head_dim)


def paged_decode_attention(
    q: Tensor,
    kv: Tensor,
    block_tables: Tensor,
    lengths: Tensor,
    scale: float | None = None,
    soft_cap: float = 0.0,
    window: int = 0,
) -> Tensor:
    """Attention of one row per sequence over its keys 0 .. lengths[i] - 1, including its own.

    q: [m, q_heads, head_dim]; block_tables: int32 [m, max_pages]; lengths: int32 [m] -> like q.
    Rows of length 0 are skipped (their output is unspecified). Query head h reads kv head
    ``h // (q_heads // kv_heads)``. scale: default head_dim ** -0.5. soft_cap: 0 means none, else
    scores become ``cap * tanh(s / cap)``. window: 0 means none, else only the last ``window`` keys
    count.
    """
    return _ops.paged_decode_attention(q, kv, block_tables, lengths, scale, soft_cap, window)


def paged_prefill_attention(
    q: Tensor,
    kv: Tensor,
    block_tables: Tensor,
    lengths: Tensor,
    query_starts: Tensor,
    scale: float | None = None,
    soft_cap: float = 0.0,
    window: int = 0,
) -> Tensor:
    """Causal attention of the last rows of several sequences. Their keys must be written already.

    Rows query_starts[i] .. query_starts[i + 1] - 1 of q [rows, q_heads, head_dim] are the last
    positions of sequence i, which has lengths[i] tokens including them. block_tables: int32
    [m, max_pages]; lengths: int32 [m]; query_starts: int32 [m + 1]. The host reads the last two,
    so it does not wait for a device if they are on the CPU. Everything else is as in
    paged_decode_attention.
    """
    return _ops.paged_prefill_attention(
        q, kv, block_tables, lengths, query_starts, scale, soft_cap, window
    )


class Sampled(NamedTuple):
    """The result of ``sample``, on the device of the logits."""

    tokens: Tensor
    """int32 [m]; -1: NaN or +inf among the logits, -2: no token is allowed."""
    logprobs: Tensor
    """float32 [m]: the tokens' logprobs before all processing; [0] if none were requested."""
    top_ids: Tensor
    """int32 [m, num_top_logprobs], best first; -1 if there are fewer."""
    top_logprobs: Tensor
    """float32 [m, num_top_logprobs]."""


def sample(
    logits: Tensor,
    positions: Tensor,
    seeds: Tensor,
    *,
    sequences: Tensor | None = None,
    temperature: Tensor | None = None,
    top_k: Tensor | None = None,
    top_p: Tensor | None = None,
    min_p: Tensor | None = None,
    presence_penalty: Tensor | None = None,
    frequency_penalty: Tensor | None = None,
    repetition_penalty: Tensor | None = None,
    counts: Sequence[Mapping[int, int]] | None = None,
    biases: Sequence[Mapping[int, float]] | None = None,
    mask: Tensor | None = None,
    num_top_logprobs: int | None = None,
) -> Sampled:
    """Draws a token from each row of logits, as the engine does.

    logits: float32 [m, vocab], contiguous, overwritten. The draw of a row is a function of its
    logits and settings, its seed (int64 [m]), sequence (int64 [m], default 0) and position (int
    [m]). Then per row, [m] each, in this order: biases (token id -> bias); penalties for the
    generated tokens, which are counts (token id -> how often); mask, int32 [m, ceil(vocab / 32)],
    bit t % 32 of word t // 32: token t is allowed; temperature (default 1; below 1e-5, or top_p 0:
    the most likely token); top_k (0: off); top_p (1: off); min_p (0: off). num_top_logprobs: None
    for no log-probabilities, else [0, 20]. The host reads the settings: it need not wait for a
    device if they are on the CPU. Raises ValueError for settings out of range.
    """
    return Sampled(
        *_ops.sample(
            logits,
            positions,
            seeds,
            sequences,
            temperature,
            top_k,
            top_p,
            min_p,
            presence_penalty,
            frequency_penalty,
            repetition_penalty,
            *_token_lists(counts, torch.int32),
            *_token_lists(biases, torch.float32),
            mask,
            -1 if num_top_logprobs is None else num_top_logprobs,
        )
    )


def _token_lists(
    rows: Sequence[Mapping[int, float]] | None, dtype: torch.dtype
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Concatenates the lists of all rows: where each begins, ids, values."""
    if rows is None:
        return None, None, None
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    ids = [token for row in rows for token in row]
    values = [value for row in rows for value in row.values()]
    return (
        torch.tensor(starts),
        torch.tensor(ids, dtype=torch.int32),
        torch.tensor(values, dtype=dtype),
    )
