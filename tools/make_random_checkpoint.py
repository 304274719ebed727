"""Write a Hugging Face checkpoint with random weights: a real shape, or a tiny model of a family.

    python tools/make_random_checkpoint.py --like qwen3-0.6b --dtype bfloat16 --out /tmp/qwen3
    python tools/make_random_checkpoint.py --like tiny-gemma2 --seed 3 --shards 2 --out /tmp/g2

The folder holds config.json, the weights (model.safetensors, or N shards with an index), a
byte-level tokenizer of 256 byte tokens and five special ones, and generation_config.json. Token
ids above the tokenizer's are valid for the model and decode to nothing.

The weights are drawn and written piece by piece, so that a model needs disk and not memory. They
never pass through `transformers`' own initialisation, which is slow for big shapes and leaves every
norm at 1 and every bias at 0, where a kernel that forgets them goes unnoticed.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers
from encoder_shapes import ENCODER_SHAPES
from hub_names import under_hub_names
from model_shapes import SHAPES
from random_weights import DTYPES, Numbers, Weight, in_mxfp4, in_ternary, split, write_weights
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

SPECIAL_TOKENS = ("<|bos|>", "<|eos|>", "<|pad|>", "<|im_start|>", "<|im_end|>")
BOS_ID, EOS_ID, PAD_ID = 256, 257, 258
ZERO_CENTRED = ("gemma", "nemotron", "vaultgemma", "qwen3_5", "qwen3_next")
QK_NORMS = ("q_norm.weight", "k_norm.weight")
ENCODERS = {str(shape["model_type"]) for shape in ENCODER_SHAPES.values()}
CONSTANTS = {"act_fn.beta": 0.5, "act_fn.eps": -1e-6}  # of xIELU

CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with one token per byte and the special tokens above, no merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: index for index, symbol in enumerate(alphabet)}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL_TOKENS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|bos|>", eos_token="<|eos|>", pad_token="<|pad|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_checkpoint(
    like: str,
    out: str | Path,
    dtype: str = "float32",
    seed: int = 0,
    *,
    shards: int = 1,
    std: float | None = None,
    overrides: Mapping[str, Any] | None = None,
    hub_names: bool = True,
    mxfp4: bool = False,
    ternary: bool = False,
    device: str = "cpu",
) -> Path:
    """Write a random checkpoint shaped like `like` (a key of SHAPES) into the folder `out`.

    Args:
        dtype: "float32", "bfloat16" or "float16": type of the stored weights.
        seed: the same seed, shape, dtype and kind of device give the same bytes.
        shards: number of weight files, at most one per tensor.
        std: standard deviation of the matrices; None is 0.02 for real shapes and 0.15 for tiny
            ones, where attention and logits would otherwise be almost uniform.
        overrides: config fields to set over the row, e.g. {"tie_word_embeddings": True}.
        hub_names: whether experts have a tensor each, as on the hub, or share one, as in
            transformers (`save_original_format=False`).
        mxfp4: experts are stored as MXFP4, as those of gpt-oss on the hub.
        ternary: matrices are stored in 2 bits, as BitNet's on the hub.
        device: where torch draws; a GPU makes 16 GB in seconds.

    Raises:
        ValueError: unknown `like` or dtype, or an impossible number of shards.
    """
    if like not in SHAPES:
        raise ValueError(f"like={like!r} is none of: {', '.join(SHAPES)}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is none of: {', '.join(DTYPES)}")
    fields = deepcopy({**SHAPES[like], **(overrides or {})})  # configs change what is nested
    if fields["model_type"] not in ENCODERS:
        fields |= {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "pad_token_id": PAD_ID}
    config = AutoConfig.for_model(**fields)
    with torch.device("meta"):
        model = model_class(config).from_config(config)
    if std is None:
        std = 0.15 if like.startswith("tiny-") else 0.02
    weights = _weights(model, dtype, std)
    if hub_names:
        weights = under_hub_names(weights, fields["model_type"])
    if mxfp4:
        weights = [part for weight in weights for part in in_mxfp4(weight)]
        config.quantization_config = {"quant_method": "mxfp4"}
    if ternary:
        weights = [part for weight in weights for part in in_ternary(weight)]
        config.quantization_config = {"quant_method": "bitnet", "linear_class": "autobitlinear"}
    out = Path(out)
    out.mkdir(parents=True, exist_ok=True)
    write_weights(out, split(weights, shards), torch.Generator(device).manual_seed(seed))
    config.architectures = [type(model).__name__]
    config.dtype = dtype
    config.save_pretrained(out)
    if getattr(model, "generation_config", None) is not None:
        model.generation_config.save_pretrained(out)
    byte_tokenizer().save_pretrained(out, save_jinja_files=False)
    return out


def model_class(config: PreTrainedConfig) -> Any:
    """The auto class for a model that makes texts, which may be one that sees images, too, or for
    one that embeds them.
    """
    if config.model_type == "mistral4":  # which transformers registers with images alone
        own = transformers.Mistral4ForCausalLM
        AutoModelForCausalLM.register(type(config), own, exist_ok=True)
    if config.model_type in ENCODERS:
        return AutoModel
    sees = hasattr(config, "vision_config")
    return AutoModelForImageTextToText if sees else AutoModelForCausalLM


def _stored(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """The parameters, and the buffers that a checkpoint has."""
    yield from model.named_parameters()
    stored = model.state_dict(keep_vars=True)
    yield from ((name, buffer) for name, buffer in model.named_buffers() if name in stored)


def _weights(model: torch.nn.Module, dtype: str, std: float) -> list[Weight]:
    """The weights of a model, tied ones once; some families' norms are 1 + weight."""
    model_type = model.config.model_type
    scaled = model_type.startswith(ZERO_CENTRED)
    zero_centred = scaled and not model_type.startswith(("gemma3n", "gemma4"))
    weights = []
    for name, parameter in _stored(model):
        mean, spread = 0.0, std
        if name.endswith(".tid2eid"):
            experts = model.config.n_routed_experts
            weights.append(Numbers(name, list(parameter.shape), "int64", experts, 0))
            continue
        if scaled and "embed_tokens" in name:
            # Scaled by sqrt(hidden) on entry and tied to the head: at full size every token would
            # predict itself.
            spread = std / 4
        elif name.endswith(tuple(CONSTANTS)):
            mean, spread = next(v for end, v in CONSTANTS.items() if name.endswith(end)), 0.0
        elif name.endswith("sinks"):
            spread = 2.0  # as far apart as scores are
        elif name.endswith(".A_log"):
            spread = 1.0
        elif name.endswith((".dt_bias", ".dt_proj.bias")):
            mean, spread = -4.0, 1.0  # heads remember tens to hundreds of tokens
        elif name.endswith("linear_attn.norm.weight"):
            mean, spread = 1.0, 0.2
        elif name.endswith("conv1d.weight"):
            spread = 0.5
        elif name.endswith("conv.conv.weight"):  # of products, which are multiplied once more
            spread = 0.35
        elif name.endswith("altup.modality_router.weight"):  # its input is divided by hidden
            spread = 6.0
        elif model_type.startswith(("gemma3n", "gemma4")) and name.endswith(QK_NORMS):
            mean, spread = 0.4, 0.2  # scores are not divided by the root of the size of a head
        elif model_type == "gpt_neo" and name.endswith("q_proj.weight"):
            spread = std / 2  # likewise
        elif parameter.dim() < 2 or name.endswith(QK_NORMS):
            is_norm = not name.endswith("bias")
            mean, spread = 1.0 if is_norm and not zero_centred else 0.0, 0.2
        weights.append(Weight(name, list(parameter.shape), dtype, mean, spread))
    return weights


def main() -> None:
    """Command line: parse, write, say what was written."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--like", required=True, choices=list(SHAPES))
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--vocab", type=int, help="vocab_size in place of the shape's")
    parser.add_argument("--mxfp4", action="store_true", help="experts as gpt-oss has them")
    parser.add_argument("--ternary", action="store_true", help="matrices as BitNet has them")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON",
                        help="a config field, e.g. --set tie_word_embeddings=true")  # fmt: skip
    args = parser.parse_args()
    overrides = {key: json.loads(value) for key, value in (s.split("=", 1) for s in args.set)}
    if args.vocab is not None:
        overrides["vocab_size"] = args.vocab
    make_checkpoint(args.like, args.out, args.dtype, args.seed,
                    shards=args.shards, overrides=overrides, mxfp4=args.mxfp4,
                    ternary=args.ternary)  # fmt: skip
    size = sum(path.stat().st_size for path in args.out.glob("*.safetensors"))
    print(f"{args.out}: {args.like}, {args.dtype}, {math.ceil(size / 2**20)} MiB of weights")


if __name__ == "__main__":
    main()
