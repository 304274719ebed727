"""GGUF files made from Hugging Face folders of encoders, as llama.cpp's converter makes them.

Names, keys, special tokens and the quantizers are those of the package ``gguf``, which is
llama.cpp's.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import MODEL_ARCH as Arch
from gguf import GGMLQuantizationType as Type
from gguf import TokenType
from gguf_files import TypeOf, encode
from safetensors.numpy import load_file

PREFIXES = ("bert.", "roberta.", "distilbert.", "model.")
# What the converter leaves out, and what fills masks.
LEFT_OUT = ("pooler.", "cls.", "lm_head.", "vocab_", "decoder.")
# RoBERTa's positions, of which the first rows are of padding.
COUNTED = ("roberta", "xlm-roberta", "camembert")
SPACE = "▁"
ARCHITECTURES = {
    **{"modernbert": Arch.MODERN_BERT, "eurobert": Arch.EUROBERT},
    **{"nomic_bert": Arch.NOMIC_BERT},
}


def add_numbers(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    kind = config["model_type"]
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers",
             "num_attention_heads": "n_heads", "intermediate_size": "hidden_dim"}  # fmt: skip
    if kind == "distilbert":
        config = {**config, **{name: config[own] for name, own in names.items()}}
    padding = 2 if kind in COUNTED else 0
    writer.add_context_length(config["max_position_embeddings"] - padding)
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config.get("layer_norm_eps", config.get("norm_eps", 1e-12)))
    if kind == "eurobert":
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_causal_attention(False)
    writer.add_token_type_count(config.get("type_vocab_size", 1))
    if kind == "nomic_bert":
        writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if kind != "modernbert":
        return
    ropes = config["rope_parameters"]
    writer.add_rope_freq_base(ropes["full_attention"]["rope_theta"])
    writer.add_rope_freq_base_swa(ropes["sliding_attention"]["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_sliding_window(config["local_attention"])
    if "global_attn_every_n_layers" in config:
        writer.add_sliding_window_pattern(config["global_attn_every_n_layers"])
    writer.add_string("modern-bert.hidden_activation", config["hidden_activation"])
    if config["architectures"][0].endswith("ForSequenceClassification"):
        pooling = {"mean": 1, "cls": 2}[config["classifier_pooling"]]
        writer.add_uint32("modern-bert.classifier.pooling_type", pooling)


def own_name(name: str, has_labels: bool) -> str | None:
    """The name as the converter has it; None: it leaves the tensor out."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    if name.startswith(LEFT_OUT) or name.endswith("position_ids"):
        return None
    if has_labels and name in ("classifier.weight", "classifier.bias"):
        return name.replace("classifier", "classifier.out_proj")
    return name


def write_encoder(
    folder: Path,
    path: Path,
    type_of: TypeOf = lambda _: Type.F32,
    *,
    pooling: int | None = None,
    fused: bool = False,
    with_pooler: bool = False,
    vectors_of_rows: bool = False,
    metadata: dict[str, int] | None = None,
) -> Path:
    """Writes ``folder`` as a GGUF file, with its tokenizer if it has one.

    ``fused``: q, k and v are one tensor. ``with_pooler``: the pooler of a BERT is the first matrix
    of its classifier, as that of RoBERTa. ``vectors_of_rows``: a matrix of one row has one
    dimension, as in files that were quantized.
    """
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    arch = ARCHITECTURES.get(kind, Arch.BERT)
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    add_numbers(writer, config)
    if pooling is not None:
        writer.add_pooling_type(gguf.PoolingType(pooling))
    labels = config.get("id2label")
    if labels is not None:
        writer.add_classifier_output_labels(list(labels.values()))
    for key, value in (metadata or {}).items():
        writer.add_uint32(key, value)
    if (folder / "tokenizer.json").exists():
        add_tokenizer(writer, folder)
    names = gguf.get_tensor_name_map(arch, 16)
    held: dict[str, list[tuple[str, np.ndarray]]] = {}  # by the name of the tensor that joins them
    for name, tensor in load_file(folder / "model.safetensors").items():
        own = own_name(name, labels is not None)
        if with_pooler and "pooler.dense" in name:
            own = name.replace("bert.pooler.dense", "classifier.dense")
        if own is None:
            continue
        if kind in COUNTED and "position_embeddings" in own:
            tensor = tensor[2:]
        stored = names.get_name(own, (".weight", ".bias"))
        assert stored is not None, own
        in_floats = tensor.ndim == 1 or "position_embd" in stored or "token_types" in stored
        quantized = Type.F32 if in_floats else type_of(stored)
        if vectors_of_rows and tensor.ndim == 2 and tensor.shape[0] == 1:
            tensor, quantized = tensor[0], Type.F32
        data = encode(tensor, quantized, np.random.default_rng(0))
        if fused and ".attn_" in stored and "_output" not in stored:
            joined = stored.replace("attn_q.", "attn_qkv.").replace("attn_k.", "attn_qkv.")
            joined = joined.replace("attn_v.", "attn_qkv.")
            held.setdefault(joined, []).append((stored, data))
            if len(held[joined]) < 3:
                continue
            parts = sorted(held[joined], key=lambda part: "qkv".index(part[0].split("_")[1][0]))
            stored, data = joined, np.concatenate([part for _, part in parts])
        writer.add_tensor(stored, data, raw_dtype=quantized)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# ---- tokenizers


def write_tokenizer(folder: Path, path: Path, says_case: bool = True) -> Path:
    """A file with the tokenizer of the folder alone."""
    writer = gguf.GGUFWriter(path, "bert")
    add_tokenizer(writer, folder, says_case)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: gguf.GGUFWriter, folder: Path, says_case: bool = True) -> None:
    """The tokenizer.json of the folder."""
    file = json.loads((folder / "tokenizer.json").read_text())
    kind = file["model"]["type"]
    if kind == "Unigram":
        texts, kinds, size = _pieces(writer, file)
    else:
        texts, kinds = _tokens(file, phantom=kind == "WordPiece")
        size = len(texts)
        writer.add_tokenizer_model("bert" if kind == "WordPiece" else "gpt2")
        is_roberta = (file["post_processor"] or {}).get("type") == "RobertaProcessing"
        writer.add_tokenizer_pre("roberta-bpe" if is_roberta else "modern-bert")
        normalizer = file.get("normalizer") or {}
        for name in ("lowercase", "strip_accents"):
            if says_case and normalizer.get(name) is not None:
                writer.add_bool(f"tokenizer.ggml.normalizer.{name}", normalizer[name])
    writer.add_token_list(texts)
    writer.add_token_types(kinds)
    special = gguf.SpecialVocab(folder, load_merges=kind == "BPE", n_vocab=size)
    special.add_to_gguf(writer, quiet=True)


def _tokens(file: dict[str, Any], phantom: bool) -> tuple[list[str], list[TokenType]]:
    """With a mark on what begins a word, and none on what does not."""
    ids = {**file["model"]["vocab"], **{t["content"]: t["id"] for t in file["added_tokens"]}}
    special = {token["content"]: token["special"] for token in file["added_tokens"]}
    texts, kinds = [], []
    for text in sorted(ids, key=lambda text: ids[text]):
        kind = TokenType.NORMAL
        if text in special:
            kind = TokenType.CONTROL if special[text] else TokenType.USER_DEFINED
        if phantom and kind != TokenType.CONTROL:
            text = text[2:] if text.startswith("##") else SPACE + text
        texts.append(text)
        kinds.append(kind)
    return [*texts, f"{SPACE}[PAD{len(texts)}]"], [*kinds, TokenType.UNUSED]


def _pieces(
    writer: gguf.GGUFWriter, file: dict[str, Any]
) -> tuple[list[str], list[TokenType], int]:
    """As of sentencepiece.bpe.model, with tokens behind it that are not used."""
    vocab = [*file["model"]["vocab"], ["[PAD]", -1e4], ["[PAD1]", -1e4]]
    special = {token["content"]: token["special"] for token in file["added_tokens"]}
    kinds = []
    for i, (text, _) in enumerate(vocab):
        kind = TokenType.NORMAL
        if text in special:
            kind = TokenType.CONTROL if special[text] else TokenType.USER_DEFINED
        if i == file["model"]["unk_id"]:
            kind = TokenType.UNKNOWN
        if i >= len(file["model"]["vocab"]):
            kind = TokenType.UNUSED
        kinds.append(kind)
    writer.add_tokenizer_model("t5")
    writer.add_tokenizer_pre("default")
    writer.add_token_scores([score for _, score in vocab])
    writer.add_add_space_prefix(True)
    removes = "WhitespaceSplit" in json.dumps(file["pre_tokenizer"])
    writer.add_remove_extra_whitespaces(removes)
    if file["normalizer"] is not None:
        writer.add_precompiled_charsmap(
            base64.b64decode(file["normalizer"]["precompiled_charsmap"])
        )
    return [text for text, _ in vocab], kinds, len(vocab)
