"""Tiny encoders with random weights, their tokenizers, and what transformers says of them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from charsmaps import charsmap

WORDS = ("paris", "rome", "is", "in", "france", "italy", "a", "cat", "sleeps", "where", "?", ".")
PIECES = ("##s", "##is", "p", "r", "##o", "##m", "##e", "c", "##a", "##t")
BERT_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")

VOCAB = 600
MAX_LENGTH = 300
_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": MAX_LENGTH,
}
_MODERN_TOKENS = {
    **{"pad_token_id": 0, "bos_token_id": 2, "cls_token_id": 2},
    **{"eos_token_id": 3, "sep_token_id": 3},
}


def _config(name: str, **fields: Any) -> Callable[..., PreTrainedConfig]:
    kind = getattr(transformers, name)

    def make(**more: Any) -> PreTrainedConfig:
        made: PreTrainedConfig = kind(**{**_SIZES, **fields, **more})
        return made

    return make


def _distilbert(**more: Any) -> PreTrainedConfig:
    names = {
        **{"hidden_size": "dim", "num_hidden_layers": "n_layers"},
        **{"num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"},
    }
    fields = {names.get(name, name): value for name, value in _SIZES.items()}
    return transformers.DistilBertConfig(**fields, **more)


def _t5(**more: Any) -> PreTrainedConfig:
    return transformers.T5Config(
        **{"vocab_size": VOCAB, "d_model": 64, "d_ff": 128, "d_kv": 24, "num_layers": 4},
        **{"num_heads": 4, "n_positions": MAX_LENGTH, "architectures": ["T5EncoderModel"]},
        **more,
    )


# As in V3, with rows of distances that end within the texts of the tests.
DEBERTA: dict[str, Any] = {
    **{"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "share_att_key": True},
    **{"position_buckets": 16, "norm_rel_ebd": "layer_norm", "position_biased_input": False},
}
# The positions of RoBERTa's first two rows are of padding.
_LONGER = {"max_position_embeddings": MAX_LENGTH + 2}
CONFIGS: dict[str, Callable[..., PreTrainedConfig]] = {
    "bert": _config("BertConfig"),
    "roberta": _config("RobertaConfig", **_LONGER),
    "xlm-roberta": _config("XLMRobertaConfig", type_vocab_size=1, **_LONGER),
    "camembert": _config("CamembertConfig", **_LONGER),
    "distilbert": _distilbert,
    # Biases by distance, whose buckets end within the texts of the tests.
    "mpnet": _config("MPNetConfig", **_LONGER),
    "deberta": _config("DebertaV2Config", **DEBERTA),
    "t5": _t5,
    # Windows of 8 tokens on each side, in all layers but every third.
    "modernbert": _config("ModernBertConfig", local_attention=16, **_MODERN_TOKENS),
    "eurobert": _config("EuroBertConfig", num_key_value_heads=2, pad_token_id=0, mask_token_id=4),
    "nomic": _config("NomicBertConfig"),
    "gte": _config("GteConfig"),
    "gte-without-types": _config("GteConfig", type_vocab_size=0),
}


def _save(model: Any, folder: Path) -> Path:
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    model.save_pretrained(folder)
    return folder


def make_encoder(name: str, folder: Path, **fields: Any) -> Path:
    """A checkpoint of an encoder alone, as those on the hub that make embeddings."""
    torch.manual_seed(4)
    config = CONFIGS[name](**fields)
    model = transformers.T5EncoderModel(config) if name == "t5" else AutoModel.from_config(config)
    return _save(model, folder)


def make_classifier(name: str, folder: Path, num_labels: int = 3, **fields: Any) -> Path:
    """A checkpoint with a classifier."""
    torch.manual_seed(4)
    config = CONFIGS[name](num_labels=num_labels, **fields)
    return _save(AutoModelForSequenceClassification.from_config(config), folder)


@torch.inference_mode()
def states(folder: Path, ids: list[int]) -> np.ndarray:
    """Of all tokens, behind the last norm."""
    is_t5 = json.loads((folder / "config.json").read_text())["model_type"] == "t5"
    kind = transformers.T5EncoderModel if is_t5 else AutoModel
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    return np.asarray(model(torch.tensor([ids])).last_hidden_state[0].numpy())


def pooled(all_states: np.ndarray, pooling: str) -> np.ndarray:
    if pooling == "mean":
        return np.asarray(all_states.mean(axis=0))
    return np.asarray(all_states[0 if pooling == "cls" else -1])


@torch.inference_mode()
def logits(folder: Path, inputs: Mapping[str, list[int]]) -> np.ndarray:
    """Of the classes of one text or pair; ``inputs`` are those of its model."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    tensors = {name: torch.tensor([value]) for name, value in inputs.items()}
    return np.asarray(model(**tensors).logits[0].numpy())


def bert_tokenizer() -> PreTrainedTokenizerFast:
    """WordPiece, as that of BERT: the second text of a pair has tokens of type 1."""
    tokens = (*BERT_TOKENS, *WORDS, *PIECES)
    core = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    core.normalizer = normalizers.BertNormalizer()
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


def xlm_roberta_tokenizer() -> PreTrainedTokenizerFast:
    """Unigram, as that of XLM-RoBERTa."""
    words = [(f"▁{word}", -float(i + 2)) for i, word in enumerate(WORDS)]
    letters = [(letter, -20.0) for letter in "▁abcdefghijklmnopqrstuvwxyz?."]
    tokens = [(token, 0.0) for token in ROBERTA_TOKENS[:4]]
    core = Tokenizer(models.Unigram([*tokens, *words, *letters], unk_id=3))
    lowered = charsmap({letter.upper(): letter for letter in ascii_lowercase})
    core.normalizer = normalizers.Precompiled(base64.b64decode(lowered))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    core.decoder = decoders.Metaspace()
    core.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        pad_token="<pad>", cls_token="<s>", sep_token="</s>", mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
