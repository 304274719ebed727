"""Draft heads of the demo model: a small EAGLE-3 head and a head for multi-token prediction.

A head sees the hidden states of the target at position t and the embedding of token t + 1, and
predicts token t + 2. It goes on with its own hidden state instead of the target's. Training
unrolls STEPS of that; the labels are the target's distributions, and the tokens are those of the
text.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRMSNorm, rotate_half

from .batches import Batch, batches
from .training import HEAD_DIM, HELD_OUT_SEED, PAD, Cycle, Recipe, rate_at

STEPS = 3
EPS = 1e-5
AUX_LAYERS = (1, 2, 3)  # the residual stream that enters these layers of the target
DRAFT_VOCAB = 512
KEPT_LOSS = 0.8  # a later step of the chain counts that much of the one before it

# The sizes hold both heads to 2 MB; `layers` is not read.
RECIPES = {
    "eagle3": Recipe(256, 128, 1, 2, 1, (Cycle(0, 900, 3e-3),), seed=1),
    "mtp": Recipe(256, 128, 1, 2, 1, (Cycle(0, 900, 3e-3),), seed=2),
}


class Attention(nn.Module):
    """Llama's attention; queries, keys and values come from `width` channels."""

    def __init__(self, recipe: Recipe, width: int) -> None:
        super().__init__()
        kv = recipe.kv_heads * HEAD_DIM
        self.heads, self.kv_heads = recipe.heads, recipe.kv_heads
        self.q_proj = nn.Linear(width, recipe.heads * HEAD_DIM, bias=False)
        self.k_proj = nn.Linear(width, kv, bias=False)
        self.v_proj = nn.Linear(width, kv, bias=False)
        self.o_proj = nn.Linear(recipe.heads * HEAD_DIM, recipe.hidden, bias=False)

    def forward(
        self,
        x: torch.Tensor,
        rope: tuple[torch.Tensor, torch.Tensor],
        mask: torch.Tensor,
        past: list[tuple[torch.Tensor, torch.Tensor]],
    ) -> torch.Tensor:
        """x [rows, length, width] -> [rows, length, hidden]; keys and values join `past`.

        The first step of a chain sees its own keys under `mask`. A later step of the chain that
        began at t sees those of the first step up to t, and those of t in the steps since.
        """
        rows, length, _ = x.shape
        cos, sin = (part[:, None] for part in rope)

        def split(y: torch.Tensor, heads: int) -> torch.Tensor:
            return y.view(rows, length, heads, HEAD_DIM).transpose(1, 2)

        query, key = split(self.q_proj(x), self.heads), split(self.k_proj(x), self.kv_heads)
        query = query * cos + rotate_half(query) * sin
        key = key * cos + rotate_half(key) * sin
        group = self.heads // self.kv_heads
        value = split(self.v_proj(x), self.kv_heads).repeat_interleave(group, dim=1)
        past.append((key.repeat_interleave(group, dim=1), value))
        (first, first_value), *later = past
        scores = (query @ first.transpose(2, 3)).masked_fill(~mask, float("-inf"))
        own = [(query * k).sum(-1, keepdim=True) for k, _ in later]
        shares = torch.cat([scores, *own], -1).mul(HEAD_DIM**-0.5).softmax(-1)
        out = shares[..., :length] @ first_value
        for step, (_, v) in enumerate(later):
            out = out + shares[..., length + step, None] * v
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))


class Mlp(nn.Module):
    """Llama's gated product."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(recipe.hidden, recipe.ffn, bias=False)
        self.up_proj = nn.Linear(recipe.hidden, recipe.ffn, bias=False)
        self.down_proj = nn.Linear(recipe.ffn, recipe.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Eagle3(nn.Module):
    """EAGLE-3 with a vocabulary of its own, in the names of SafeAILab's checkpoints.

    Token i of the draft's vocabulary is token i + d2t[i] of the target's.
    """

    def __init__(self, recipe: Recipe, kept: torch.Tensor) -> None:
        super().__init__()
        hidden = recipe.hidden
        self.fc = nn.Linear(len(AUX_LAYERS) * hidden, hidden, bias=False)
        self.midlayer = nn.ModuleDict(
            {
                "input_layernorm": LlamaRMSNorm(hidden, EPS),
                "hidden_norm": LlamaRMSNorm(hidden, EPS),
                "self_attn": Attention(recipe, 2 * hidden),
                "post_attention_layernorm": LlamaRMSNorm(hidden, EPS),
                "mlp": Mlp(recipe),
            }
        )
        self.norm = LlamaRMSNorm(hidden, EPS)
        self.lm_head = nn.Linear(hidden, len(kept), bias=False)
        self.register_buffer("d2t", kept - torch.arange(len(kept)))
        self.kept = kept

    def begin(self, target: Target) -> torch.Tensor:
        """The hidden states that the chain begins with."""
        return self.fc(torch.cat([target.entering[layer] for layer in AUX_LAYERS], -1))

    def forward(
        self, embedded: torch.Tensor, hidden: torch.Tensor, attend: Attend
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next hidden states, and the logits over the draft's vocabulary."""
        layer = self.midlayer
        x = torch.cat([layer["input_layernorm"](embedded), layer["hidden_norm"](hidden)], -1)
        hidden = hidden + attend(layer["self_attn"], x)
        hidden = hidden + layer["mlp"](layer["post_attention_layernorm"](hidden))
        return hidden, self.lm_head(self.norm(hidden))


class Mtp(nn.Module):
    """A layer for multi-token prediction with the names and the order of MiMo's.

    It shares the embeddings and the head of the target, whose hidden states are those behind the
    last norm.
    """

    def __init__(self, recipe: Recipe, head: torch.Tensor) -> None:
        super().__init__()
        hidden = recipe.hidden
        self.token_layernorm = LlamaRMSNorm(hidden, EPS)
        self.hidden_layernorm = LlamaRMSNorm(hidden, EPS)
        self.input_proj = nn.Linear(2 * hidden, hidden, bias=False)
        self.input_layernorm = LlamaRMSNorm(hidden, EPS)
        self.self_attn = Attention(recipe, hidden)
        self.post_attention_layernorm = LlamaRMSNorm(hidden, EPS)
        self.mlp = Mlp(recipe)
        self.final_layernorm = LlamaRMSNorm(hidden, EPS)
        self.head = head
        self.kept = torch.arange(len(head))

    def begin(self, target: Target) -> torch.Tensor:
        """The hidden states that the chain begins with."""
        return target.last

    def forward(
        self, embedded: torch.Tensor, hidden: torch.Tensor, attend: Attend
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The next hidden states, and the logits over the vocabulary."""
        both = [self.hidden_layernorm(hidden), self.token_layernorm(embedded)]
        x = self.input_proj(torch.cat(both, -1))
        x = x + attend(self.self_attn, self.input_layernorm(x))
        x = x + self.mlp(self.post_attention_layernorm(x))
        hidden = self.final_layernorm(x)
        return hidden, hidden @ self.head.T


Attend = Callable[[nn.Module, torch.Tensor], torch.Tensor]
Head = Eagle3 | Mtp


@dataclass(frozen=True)
class Target:
    """What the target computes for a batch; the first two [rows, length, hidden]."""

    entering: tuple[torch.Tensor, ...]  # the residual stream that enters each layer
    last: torch.Tensor  # behind the last norm
    logits: torch.Tensor  # [rows, length, vocab]


@torch.no_grad()
def run_target(model: LlamaForCausalLM, batch: Batch) -> Target:
    """The target's forward."""
    out = model.model(
        input_ids=batch.ids,
        attention_mask=batch.attention_mask(),
        use_cache=False,
        output_hidden_states=True,
    )
    last = out.last_hidden_state
    return Target(out.hidden_states, last, model.lm_head(last))


@dataclass
class Scores:
    """Of each step of the chain: the loss, and the share of greedy drafts that the target takes."""

    losses: list[torch.Tensor]
    hits: list[float]


def run_chain(head: Head, model: LlamaForCausalLM, batch: Batch, steps: int = STEPS) -> Scores:
    """Step i of the chain that begins at t predicts token t + 2 + i of each answer."""
    target, mask = run_target(model, batch), batch.attention_mask()
    rows, length = batch.ids.shape
    hidden = head.begin(target)
    past: list[tuple[torch.Tensor, torch.Tensor]] = []
    scores = Scores([], [])
    alive = torch.ones(rows, length, dtype=torch.bool)
    for step in range(steps):
        ids = _ahead(batch.ids, 1 + step, PAD)
        with torch.no_grad():
            embedded = model.model.embed_tokens(ids)
            rope = model.model.rotary_emb(embedded, torch.arange(length)[None] + step)
        hidden, logits = head(
            embedded, hidden, lambda part, x, rope=rope: part(x, rope, mask, past)
        )
        # The target's distribution of token t + 2 + step stands in its row t + 1 + step.
        wanted = _ahead(target.logits, 1 + step, 0.0)
        learned = _ahead(batch.learned, 2 + step, False)
        same = _ahead(batch.document, 2 + step, -2) == batch.document
        chosen = learned & same
        labels = wanted[chosen][:, head.kept].softmax(-1)
        scores.losses.append(cross_entropy(logits[chosen], labels))
        right = head.kept[logits.argmax(-1)] == wanted.argmax(-1)
        alive = alive & right
        scores.hits.append(alive[chosen].float().mean().item())
    return scores


def _ahead(values: torch.Tensor, by: int, fill: float) -> torch.Tensor:
    """values[:, t + by] at t, and `fill` at the end."""
    ahead = torch.full_like(values, fill)
    ahead[:, :-by] = values[:, by:]
    return ahead


def frequent_tokens(tokenizer: Tokenizer, seed: int, count: int) -> torch.Tensor:
    """The ids that answers have most often, ascending."""
    numbers = torch.zeros(tokenizer.get_vocab_size())
    stream = batches(tokenizer, seed)
    for _ in range(100):
        batch = next(stream)
        numbers += torch.bincount(batch.ids[batch.learned], minlength=len(numbers))
    return numbers.topk(count).indices.sort().values


def build_head(kind: str, model: LlamaForCausalLM, tokenizer: Tokenizer) -> Head:
    """A fresh head of the target."""
    recipe = RECIPES[kind]
    torch.manual_seed(recipe.seed)
    if kind == "mtp":
        return Mtp(recipe, model.lm_head.weight.detach())
    return Eagle3(recipe, frequent_tokens(tokenizer, recipe.seed * 1_000_000, DRAFT_VOCAB))


def train_head(
    kind: str, model: LlamaForCausalLM, tokenizer: Tokenizer, log: Callable[[str], None] = print
) -> tuple[Head, float]:
    """A trained head, and the seconds that its training took."""
    recipe = RECIPES[kind]
    model.eval().requires_grad_(False)
    head = build_head(kind, model, tokenizer)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01)
    stream = batches(tokenizer, recipe.seed * 1_000_000 + 7)
    began = time.monotonic()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(recipe, step)
        scores = run_chain(head, model, next(stream))
        weighted = [KEPT_LOSS**i * loss for i, loss in enumerate(scores.losses)]
        loss = torch.stack(weighted).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 50 == 0:
            hits = " ".join(f"{hit:.3f}" for hit in scores.hits)
            seconds = time.monotonic() - began
            log(f"step {step + 1:5d}  loss {loss.item():.4f}  taken {hits}  {seconds:.0f} s")
    return head, time.monotonic() - began


def tensors(head: Head) -> dict[str, torch.Tensor]:
    """The tensors of a checkpoint of the head."""
    prefix = "model.mtp_layers.0." if isinstance(head, Mtp) else ""
    return {prefix + name: value for name, value in head.state_dict().items()}


@torch.no_grad()
def taken(head: Head, model: LlamaForCausalLM, tokenizer: Tokenizer) -> list[float]:
    """Shares of positions of held-out answers whose first 1, 2, ... STEPS drafts are all taken."""
    stream = batches(tokenizer, HELD_OUT_SEED)
    sums = torch.zeros(STEPS)
    for _ in range(10):
        sums += torch.tensor(run_chain(head, model, next(stream)).hits)
    return [round(share, 3) for share in (sums / 10).tolist()]
