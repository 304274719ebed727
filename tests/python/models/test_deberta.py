"""DeBERTa V2 and V3: attention with vectors of distances, against transformers, what is made of the
weights when they are loaded, tokenizers, and what is refused."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from adapter_folders import linear_modules, weight_updates, write_adapter
from charsmaps import charsmap
from encoder_folders import (
    CONFIGS,
    logits,
    make_classifier,
    make_encoder,
    pooled,
    states,
)
from paged_driver import random_tokens
from safetensors.torch import load_file
from test_embedding_files import vectors
from test_encoders import EMULATED, SETTINGS, assert_close, edit_config, texts
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import PreTrainedTokenizerFast

from mlc_native import MLCEngine, inspect_model
from mlc_native._core import testing
from mlc_native.errors import LoadError

LONG = {"max_position_embeddings": 512}
LONG_TEXTS = [[5 + id_ for id_ in random_tokens(n, 590, seed=n)] for n in (1, 2, 3, 60, 333, 512)]


def found_vectors(folder: Path, ids: list[list[int]], **settings: Any) -> np.ndarray:
    longest = json.loads((folder / "config.json").read_text())["max_position_embeddings"]
    settings = {**SETTINGS, "max_single_sequence_length": longest, **settings}
    with MLCEngine(folder, "cpu", **settings) as engine:
        return vectors(engine, ids, pooling="mean", normalize=False)


# ---- distances


@pytest.mark.parametrize(
    "fields",
    [
        {"position_buckets": 256},  # as in V3, with texts beyond the distances that are exact
        {"position_buckets": 64, "max_relative_positions": 300},
        {"position_buckets": 32, "max_relative_positions": 40},
        {"position_buckets": 2},
        {"position_buckets": 6},
        {"position_buckets": -1},
        {"position_buckets": 0, "max_relative_positions": 25},
        {"position_buckets": -1, "max_relative_positions": 1},
        {"position_buckets": -1, "max_position_embeddings": 3},
        {"position_buckets": 4, "max_position_embeddings": 60},
        {"norm_rel_ebd": "none"},
        {"pos_att_type": ["c2p"]},
        {"pos_att_type": "p2c"},
        {"pos_att_type": "c2p|p2c"},
        {"attention_head_size": 16},
        {"type_vocab_size": 2},
    ],
    ids=str,
)
def test_states_are_those_of_transformers(fields: dict[str, Any], tmp_path: Path) -> None:
    fields = {"num_hidden_layers": 2, **LONG, **fields}
    folder = make_encoder("deberta", tmp_path, **fields)
    texts_of_length = [ids for ids in LONG_TEXTS if len(ids) <= fields["max_position_embeddings"]]
    found = found_vectors(folder, texts_of_length)
    for vector, ids in zip(found, texts_of_length, strict=True):
        assert_close(vector, pooled(states(folder, ids), "mean"), 1e-5)


@pytest.mark.usefixtures("best_isa")
def test_bits_depend_on_the_text_alone(tmp_path: Path) -> None:
    folder = make_encoder("deberta", tmp_path, **LONG)
    found = found_vectors(folder, LONG_TEXTS)
    expected = np.stack([pooled(states(folder, ids), "mean") for ids in LONG_TEXTS])
    assert_close(found, expected, 1e-5)
    for threads in (1, 2, 3):
        turned = found_vectors(folder, LONG_TEXTS[::-1], num_threads=threads)
        assert np.array_equal(turned[::-1], found)
        alone = [found_vectors(folder, [ids], num_threads=threads) for ids in LONG_TEXTS]
        assert np.array_equal(np.concatenate(alone), found)


@pytest.mark.parametrize(
    ("form", "similarity"),
    [
        ({"dtype": "bfloat16"}, 0.999),
        ({"dtype": "float16"}, 0.9999),
        ({"quantization": "q8"}, 0.999),
        ({"quantization": "q4"}, 0.97),
        ({"kv_cache_dtype": "float16"}, 0.99999),
        ({"kv_cache_dtype": "bfloat16"}, 0.999),
        ({"kv_cache_dtype": "int8"}, 0.999),
    ],
    ids=str,
)
def test_other_weights_and_pages_are_close(
    form: dict[str, str], similarity: float, tmp_path: Path
) -> None:
    folder = make_encoder("deberta", tmp_path)
    exact = found_vectors(folder, texts())
    found = found_vectors(folder, texts(), **form)
    assert not np.array_equal(found, exact)
    for vector, ids in zip(found, texts(), strict=True):
        want = pooled(states(folder, ids), "mean")
        assert vector @ want / np.linalg.norm(want) / np.linalg.norm(vector) > similarity


# ---- memory


def test_vectors_of_distances_are_counted_as_weights(tmp_path: Path) -> None:
    """They reach as far as a text is long, or as they differ."""

    def made(**fields: Any) -> int:
        name = "-".join(str(value) for value in fields.values())
        folder = make_encoder("deberta", tmp_path / name, **fields)
        weight_bytes = int(testing.TestModel(str(folder), dtype="float32").metadata["weight_bytes"])
        assert inspect_model(folder)["memory"]["float32"] == weight_bytes
        return weight_bytes

    per_distance = 4 * 2 * 64 * 2 * 4  # layers, tables, elements of all heads, sides, bytes
    short = made(max_position_embeddings=100)
    assert made(max_position_embeddings=300) - short == 200 * per_distance
    # Rows of the table, and no more distances than they are for.
    linear = {"position_buckets": -1, "max_position_embeddings": 300}
    rows = 64 * 2 * 4
    few, more = (made(**linear, max_relative_positions=most) for most in (20, 50))
    assert more - few == 30 * per_distance + 30 * rows


def test_mapped_weights_give_the_same(tmp_path: Path) -> None:
    folder = make_encoder("deberta", tmp_path / "model")
    cache = str(tmp_path / "cache")
    plain = found_vectors(folder, texts())
    for _ in range(2):
        assert np.array_equal(found_vectors(folder, texts(), weight_cache_dir=cache), plain)
    found = testing.TestModel(str(folder), dtype="float32", weight_cache_dir=cache).metadata
    assert 0 < found["mapped_weight_bytes"] < found["weight_bytes"]


# ---- checkpoints


@pytest.mark.parametrize("legacy", [True, False])
def test_what_fills_masks_is_not_read(legacy: bool, tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = CONFIGS["deberta"](legacy=legacy)
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    head = "cls." if legacy else "lm_predictions."
    assert any(name.startswith(head) for name in load_file(tmp_path / "model.safetensors"))
    found = found_vectors(tmp_path, texts(), strict_weights=True)
    for vector, ids in zip(found, texts(), strict=True):
        assert_close(vector, pooled(states(tmp_path, ids), "mean"))


@pytest.mark.parametrize("activation", ["gelu", "tanh", "relu", "silu"])
def test_classes_are_those_of_transformers(activation: str, tmp_path: Path) -> None:
    folder = make_classifier("deberta", tmp_path, pooler_hidden_act=activation)
    with MLCEngine(folder, "cpu", strict_weights=True, **SETTINGS) as engine:
        found = [each.probs for each in engine.classify(texts(), use_activation=False)]
    for ids, values in zip(texts(), found, strict=True):
        want = logits(folder, {"input_ids": ids})
        assert_close(np.array(values), want)
        assert np.argmax(values) == np.argmax(want)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"relative_attention": False}, "relative_attention.*attention without distances"),
        ({"relative_attention": None}, "relative_attention"),
        ({"position_biased_input": True}, "position_biased_input.*added to embeddings"),
        ({"position_biased_input": None}, "position_biased_input"),
        ({"share_att_key": False}, "share_att_key.*matrices for distances of their own"),
        ({"share_att_key": None}, "share_att_key"),
        ({"conv_kernel_size": 3}, "conv_kernel_size.*a convolution"),
        ({"embedding_size": 32}, "embedding_size.*a matrix from embeddings"),
        ({"pos_att_type": []}, 'pos_att_type.*must be "c2p", "p2c" or both'),
        ({"pos_att_type": None}, "pos_att_type"),
        ({"pos_att_type": "p2p|c2p"}, "pos_att_type"),
        ({"norm_rel_ebd": "rms"}, "norm_rel_ebd.*layer_norm"),
        ({"position_buckets": 15}, "position_buckets.*an even number below 598"),
        ({"max_relative_positions": 9}, "position_buckets.*an even number below 16"),
        ({"position_buckets": 5000}, "position_buckets"),
        ({"max_relative_positions": 70000}, "max_relative_positions"),
        ({"max_position_embeddings": 70000}, "max_relative_positions.*must be given"),
        ({"type_vocab_size": 1}, "token_type_embeddings"),
        ({"position_buckets": 32}, "rel_embeddings"),
        ({"num_attention_heads": 7}, "num_attention_heads"),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused(
    fields: dict[str, Any], message: str, tmp_path: Path
) -> None:
    folder = make_encoder("deberta", tmp_path)
    edit_config(folder, **fields)
    with pytest.raises(LoadError, match=message):
        MLCEngine(folder, "cpu", **SETTINGS)


def test_the_classifier_says_its_activation(tmp_path: Path) -> None:
    folder = make_classifier("deberta", tmp_path)
    edit_config(folder, pooler_hidden_act="mish")
    with pytest.raises(LoadError, match=r"pooler_hidden_act.*gelu, silu"):
        MLCEngine(folder, "cpu", **SETTINGS)


def test_cuda_refuses_it(tmp_path: Path) -> None:
    folder = make_encoder("deberta", tmp_path)
    message = "DebertaV2ForMaskedLM is not supported on CUDA: it needs attention with vectors"
    with pytest.raises(LoadError, match=message):
        MLCEngine(folder, "cuda:0", **{**SETTINGS, "model_lib": EMULATED})


# ---- adapters


def test_adapters_of_what_makes_no_distances(tmp_path: Path) -> None:
    folder = make_encoder("deberta", tmp_path / "model")
    assert len(linear_modules(folder, ["query_proj", "key_proj"])) == 2 * 4
    allowed = ["value_proj", "dense"]
    adapter = write_adapter(tmp_path / "allowed", folder, seed=1, strength=1.5, targets=allowed)
    merged = tmp_path / "merged"
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32)
    updates = weight_updates(adapter)
    assert len(updates) == 4 * 4  # of values, of what heads give, two of the feed-forward block
    with torch.no_grad():
        for module, update in updates.items():
            model.get_submodule(module).weight += torch.from_numpy(update).float()
    model.save_pretrained(merged)
    refused = write_adapter(tmp_path / "refused", folder, seed=1, targets=["key_proj"])
    with MLCEngine(folder, "cpu", adapters={"a": str(adapter)}, **SETTINGS) as engine:
        found = vectors(engine, texts(), pooling="mean", normalize=False, adapter="a")
        for vector, ids in zip(found, texts(), strict=True):
            assert_close(vector, pooled(states(merged, ids), "mean"))
        with pytest.raises(LoadError, match="it makes the vectors of distances, too"):
            engine.load_adapter("b", str(refused))


# ---- tokenizers

WORDS = ("paris", "rome", "is", "in", "france", "a", "cat", "sleeps", "where", "the", "don")
LETTERS = "▁abcdefghijklmnopqrstuvwxyzABCDEFP?.,!'é語"
HARD_TEXTS = [
    "Paris is in France.", "where is  rome ?", " leading and trailing ", "tabs\tand\nlines\r\n",
    "don't!?", "", "café cafe\u0301", "語語 unknown: 🙂", "a special [MASK] token[SEP] b", "   ",
    "A.B.C", "a\u00a0cat",
]  # fmt: skip


def vocabulary() -> list[tuple[str, float]]:
    special = [(token, 0.0) for token in ("[PAD]", "[CLS]", "[SEP]", "[UNK]")]
    words = [(f"▁{word}", -float(i + 2)) for i, word in enumerate(WORDS)]
    inner = [(word, -float(i + 5)) for i, word in enumerate(WORDS)]
    return [*special, *words, *inner, *((letter, -20.0) for letter in LETTERS)]


def as_transformers_makes_it(**options: Any) -> Any:
    return transformers.DebertaV2Tokenizer(vocab=vocabulary(), **options)


def as_on_the_hub(*, lower: bool = False) -> Any:
    """As releases before 5 of transformers wrote it."""
    core = Tokenizer(Unigram(vocabulary(), unk_id=3))
    folded = charsmap({"é": "e", "A": "a"})
    steps: list[Any] = [normalizers.Lowercase()] if lower else []
    steps += [normalizers.Strip(), normalizers.Precompiled(base64.b64decode(folded))]
    core.normalizer = normalizers.Sequence([*steps, normalizers.Replace(Regex(" {2,}"), " ")])
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    core.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="[CLS]", eos_token="[SEP]", unk_token="[UNK]",
        pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )  # fmt: skip


TOKENIZERS: dict[str, Callable[[], Any]] = {
    "plain": as_transformers_makes_it,
    "lower": lambda: as_transformers_makes_it(do_lower_case=True),
    "punctuation": lambda: as_transformers_makes_it(split_by_punct=True),
    "hub": as_on_the_hub,
    "hub-lower": lambda: as_on_the_hub(lower=True),
}


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_texts_and_pairs_have_the_ids_of_transformers(kind: str, tmp_path: Path) -> None:
    folder = make_classifier("deberta", tmp_path, num_labels=1)
    tokenizer = TOKENIZERS[kind]()
    tokenizer.save_pretrained(folder)
    with MLCEngine(folder, "cpu", **SETTINGS) as engine:
        assert engine.tokenizer is not None
        for text in HARD_TEXTS:
            found_ids = engine.tokenizer.special_tokens.around(engine.tokenizer.encode(text))
            assert found_ids == tokenizer(text)["input_ids"], text
        query, documents = HARD_TEXTS[0], [text for text in HARD_TEXTS if text]
        found = engine.score(query, documents, use_activation=False)
        want = [float(logits(folder, tokenizer(query, each))[0]) for each in documents]
        assert [each.score for each in found] == pytest.approx(want, rel=1e-4, abs=1e-5)
        first = engine.rerank(query, documents).results[0]
        assert first.index == int(np.argmax(want))
