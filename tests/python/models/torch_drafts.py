"""Draft heads in torch, by the computation that their authors published.

`TorchHead` reads a folder as its authors' code does. It shares nothing with the engine: neither the
reading of config.json nor the states of the target, which are transformers'.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from draft_checkpoints import MTP_STYLES, mtp_names
from paged_driver import reference_model
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import linear, silu
from transformers import DynamicCache
from transformers.modeling_layers import MtpModel


@functools.lru_cache(maxsize=4)
def all_streams(path: Path, tokens: tuple[int, ...]) -> list[Tensor]:
    """Each stream of transformers' hidden states: [tokens, hidden]."""
    model = reference_model(path, "auto").float()
    last: list[Tensor] = []  # what the final norm reads; NanoChat's has read the embedding before
    decoder = getattr(model.base_model, "language_model", model.base_model)
    decoder = getattr(decoder, "model", decoder)  # of Llama 4
    decoder = getattr(decoder, "decoder", decoder)  # of OPT
    names = ("norm", "final_layernorm", "final_layer_norm", "embedding_norm", "norm_f", "ln_f")
    norm = next(getattr(decoder, name) for name in names if hasattr(decoder, name))
    norm.register_forward_pre_hook(lambda _, args: last.append(args[0]))
    with torch.inference_mode():
        states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    return [state[0] for state in (*states[:-1], last[-1], states[-1])]


def target_states(path: Path, tokens: Sequence[int], streams: Sequence[int]) -> Tensor:
    """Streams of transformers' hidden states: [tokens, streams * hidden]."""
    states = all_streams(path, tuple(tokens))
    return torch.cat([states[stream] for stream in streams], dim=-1)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """x: [rows, heads, head_dim]."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions[:, None].float() * frequencies
    cos = torch.cat([angles.cos()] * 2, -1)[:, None]
    sin = torch.cat([angles.sin()] * 2, -1)[:, None]
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


class TorchHead:
    """A draft head of one sequence, with its keys and values."""

    def __init__(self, folder: Path, target: Path) -> None:
        self.root = json.loads((folder / "config.json").read_text())
        self.config = {**self.root, **self.root.get("transformer_layer_config", {})}
        rope = self.config.get("rope_parameters", self.config)
        self.theta = rope["rope_theta"]
        heads = self.config["num_attention_heads"]
        self.head_dim = self.config.get("head_dim") or self.config["hidden_size"] // heads
        self.tensors = {k: v.float() for k, v in load_file(folder / "model.safetensors").items()}
        of_target = load_file(target / "model.safetensors")
        embeddings = of_target["model.embed_tokens.weight"]
        head = of_target.get("lm_head.weight", embeddings)
        self.embeddings = self.tensors.get("embed_tokens.weight", embeddings.float())
        self.head = self.tensors.get("lm_head.weight", head.float())
        names = (mtp_names(style, self.config["num_hidden_layers"]) for style in MTP_STYLES)
        self.mtp = next((n for n in names if n["fuse"] + ".weight" in self.tensors), None)
        if self.mtp:
            self.layer = self.mtp["layer"]
        else:
            self.layer = (
                "midlayer." if "midlayer.hidden_norm.weight" in self.tensors else "layers.0."
            )
        self.is_eagle1 = not self.mtp and "norm.weight" not in self.tensors
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.length = 0

    def linear(self, name: str, x: Tensor) -> Tensor:
        return linear(x, self.tensors[name + ".weight"], self.tensors.get(name + ".bias"))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self.tensors[name + ".weight"], self.config["rms_norm_eps"])

    def heads(self, name: str, x: Tensor) -> Tensor:
        y = self.linear(f"{self.layer}self_attn.{name}_proj", x)
        y = y.view(len(x), -1, self.head_dim)
        norm = f"{self.layer}self_attn.{name}_norm"
        return self.norm(norm, y) if norm + ".weight" in self.tensors else y

    def attention(self, x: Tensor) -> Tensor:
        positions = torch.arange(self.length, self.length + len(x))
        theta = self.theta
        q = rotate(self.heads("q", x), positions, theta)
        k, v = rotate(self.heads("k", x), positions, theta), self.heads("v", x)
        before = self.length
        self.keys = k if self.keys is None else torch.cat([self.keys[:before], k])
        self.values = v if self.values is None else torch.cat([self.values[:before], v])
        self.length += len(x)
        group = q.shape[1] // k.shape[1]
        keys = self.keys.repeat_interleave(group, 1)
        values = self.values.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, keys) / q.shape[-1] ** 0.5
        mask = positions[:, None] >= torch.arange(self.length)
        weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
        attended = torch.einsum("hqk,khd->qhd", weights, values).flatten(1)
        return self.linear(f"{self.layer}self_attn.o_proj", attended)

    def block(self, residual: Tensor, x: Tensor) -> Tensor:
        residual = residual + self.attention(x)
        x = self.norm(f"{self.layer}post_attention_layernorm", residual)
        gate = silu(self.linear(f"{self.layer}mlp.gate_proj", x))
        up = self.linear(f"{self.layer}mlp.up_proj", x)
        return residual + self.linear(f"{self.layer}mlp.down_proj", gate * up)

    def fuse(self, states: Tensor) -> Tensor:
        """EAGLE-3: one state of those of several layers of the target."""
        if self.root.get("norm_before_fc"):
            states = self.norm("input_norm", states)
        if self.root.get("fc_norm"):
            parts = states.chunk(3, dim=-1)
            states = torch.cat([self.norm(f"fc_norm.{i}", x) for i, x in enumerate(parts)], -1)
        return self.linear("fc", states)

    def step(self, tokens: Sequence[int], states: Tensor) -> tuple[int, Tensor]:
        """The next token of the last row, and the state that its forward reads."""
        embedded = self.embeddings[torch.tensor(list(tokens))]
        if self.mtp:
            embedded = self.norm(self.mtp["embedding_norm"], embedded)
            states = self.norm(self.mtp["state_norm"], states)
            states_first = self.mtp["fuse"].endswith("input_proj")
            joined = [states, embedded] if states_first else [embedded, states]
            x = self.linear(self.mtp["fuse"], torch.cat(joined, -1))
            x = self.block(x, self.norm(self.layer + "input_layernorm", x))
            out = normed = self.norm(self.mtp["final_norm"], x)
        elif self.is_eagle1:
            x = self.linear("fc", torch.cat([embedded, states], -1))
            out = normed = self.block(x, x)
        else:
            embedded = self.norm(self.layer + "input_layernorm", embedded)
            normed = self.norm(self.layer + "hidden_norm", states)
            first = self.root.get("norm_before_residual", "speculators_model_type" in self.root)
            out = self.block(normed if first else states, torch.cat([embedded, normed], -1))
            normed = self.norm("norm", out)
            out = normed if self.root.get("norm_output") else out
        token = int(linear(normed[-1], self.head).argmax())
        if "d2t" in self.tensors:
            token += int(self.tensors["d2t"][token])
        return token, out[-1:]

    @torch.inference_mode()
    def propose(self, tokens: Sequence[int], states: Tensor, length: int) -> list[int]:
        """Feed what the target has computed, then draft `length` tokens and forget their keys."""
        takes_one = self.mtp or self.is_eagle1
        token, state = self.step(tokens, states if takes_one else self.fuse(states))
        fed, drafts = self.length, [token]
        while len(drafts) < length:
            token, state = self.step([token], state)
            drafts.append(token)
        self.length = fed
        return drafts


class TorchMedusa:
    """Medusa's heads, which all read the state of the last token that the target has computed."""

    def __init__(self, folder: Path, target: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        of_vllm = "num_heads" in config
        self.heads = range(config["num_heads" if of_vllm else "medusa_num_heads"])
        self.blocks = range(config["num_hidden_layers" if of_vllm else "medusa_num_layers"])
        self.block = "blocks.{}.layers.{}" if of_vllm else "{}.{}.linear"
        self.head = "lm_heads.{}.weight" if of_vllm else "{}.{}.weight"
        (file,) = folder.glob("*.safetensors")
        stored = load_file(file).items()
        self.tensors = {k.removeprefix("medusa_head."): v.float() for k, v in stored}
        of_target = load_file(target / "model.safetensors")
        self.shared = self.tensors.get("lm_head.weight", of_target["lm_head.weight"].float())

    @torch.inference_mode()
    def propose(self, tokens: Sequence[int], states: Tensor, length: int) -> list[int]:
        drafts = []
        for head in self.heads[:length]:
            x = states[-1]
            for block in self.blocks:
                name = self.block.format(head, block)
                bias = self.tensors.get(name + ".bias")
                x = x + silu(linear(x, self.tensors[name + ".weight"], bias))
            matrix = self.tensors.get(self.head.format(head, len(self.blocks)), self.shared)
            drafts.append(int(linear(x, matrix).argmax()))
        return drafts


class TransformersMtp:
    """The MTP head in the folder of a model, by transformers' own classes. A draft of several
    tokens takes its one layer again, as vLLM does."""

    def __init__(self, target: Path) -> None:
        model = reference_model(target, "auto").float()
        # In place of the numbers of layers that the authors' models have.
        model._keys_to_ignore_on_load_unexpected = [f"layers.{model.config.num_hidden_layers}."]
        if not hasattr(model.config, "num_mtp_layers"):  # GLM-4.7-Flash, of which 5.24 has none
            model.config.num_mtp_layers = 1
            model.config.mtp_mlp_layer_types = model.config.mlp_layer_types[-1:]
        self.mtp = MtpModel.from_pretrained(model).float().eval()
        self.cache = DynamicCache()
        self.length = 0

    def step(self, tokens: Sequence[int], states: Tensor) -> tuple[int, Tensor]:
        """The next token of the last row, and the state that its forward reads."""
        positions = torch.arange(self.length, self.length + len(tokens))[None]
        self.length += len(tokens)
        ids = torch.tensor([list(tokens)])
        out = self.mtp.forward_layer(0, states[None], positions, self.cache, input_ids=ids)[0]
        return int(self.mtp.shared_head(out[-1]).argmax()), out[-1:]

    @torch.inference_mode()
    def propose(self, tokens: Sequence[int], states: Tensor, length: int) -> list[int]:
        token, state = self.step(tokens, states)
        fed, drafts = self.length, [token]
        while len(drafts) < length:
            token, state = self.step([token], state)
            drafts.append(token)
        if self.length > fed:
            self.cache.crop(fed - self.length)
        self.length = fed
        return drafts


class TransformersQwenMtp(TransformersMtp):
    """The MTP head of Qwen3-Next and Qwen3.5, whose one layer is transformers' own."""

    def __init__(self, target: Path) -> None:
        model = reference_model(target, "auto").float()
        decoder = getattr(model.model, "language_model", model.model)
        self.embeddings, self.rope, self.head = (
            decoder.embed_tokens, decoder.rotary_emb, model.lm_head,
        )  # fmt: skip
        config = decoder.config
        attends = config.layer_types.index("full_attention")
        own = {k.removeprefix("mtp."): v.float() for k, v in load_checkpoint(target).items()
               if k.startswith("mtp.")}  # fmt: skip
        layer = type(decoder.layers[attends])(config, layer_idx=attends)
        layer.load_state_dict(of_layer(own))
        layer.self_attn.layer_idx = 0  # of the cache
        self.layer = layer.float().eval()
        self.norms = {}
        for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
            norm = type(decoder.norm)(config.hidden_size, eps=config.rms_norm_eps)
            norm.load_state_dict({"weight": own[name + ".weight"]})
            self.norms[name] = norm
        self.fuse = own["fc.weight"]
        self.cache = DynamicCache()
        self.length = 0

    def step(self, tokens: Sequence[int], states: Tensor) -> tuple[int, Tensor]:
        rows = torch.arange(self.length, self.length + len(tokens))
        self.length += len(tokens)
        embedded = self.embeddings(torch.tensor([list(tokens)]))
        joined = [self.norms["pre_fc_norm_embedding"](embedded),
                  self.norms["pre_fc_norm_hidden"](states[None])]  # fmt: skip
        x = linear(torch.cat(joined, -1), self.fuse)
        mask = rows[:, None] >= torch.arange(self.length)
        out = self.layer(
            x,
            position_embeddings=self.rope(x, rows[None]),
            attention_mask=torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)[None, None],
            position_ids=rows[None],
            cache=self.cache,
        )
        normed = self.norms["norm"](out)[0]
        return int(self.head(normed[-1]).argmax()), normed[-1:]


def load_checkpoint(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def of_layer(own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the layer, with one for all experts."""
    prefix = "layers.0."
    found = {k.removeprefix(prefix): v for k, v in own.items() if k.startswith(prefix)}
    numbered = {k: found.pop(k) for k in list(found) if re.search(r"experts\.\d+\.", k)}
    if numbered:
        gate, up, down = (
            torch.stack([numbered[f"mlp.experts.{i}.{part}_proj.weight"]
                         for i in range(len(numbered) // 3)])
            for part in ("gate", "up", "down")
        )  # fmt: skip
        found["mlp.experts.gate_up_proj"] = torch.cat([gate, up], 1)
        found["mlp.experts.down_proj"] = down
    return found


def torch_head(folder: Path, target: Path) -> TorchHead | TorchMedusa:
    """The head in a folder as its authors' code computes it."""
    config = json.loads((folder / "config.json").read_text())
    is_medusa = "medusa_num_heads" in config or config.get("model_type") == "medusa"
    return TorchMedusa(folder, target) if is_medusa else TorchHead(folder, target)
